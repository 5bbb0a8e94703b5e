#include <libtrain/checkpoint/detail/folder.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// 0, or the reason.
int sync_descriptor(int descriptor) noexcept {
  while (::fsync(descriptor) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

std::string_view advice_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "Free disk space there, or set another folder.";
    case EFBIG:
      return "Raise the limit on the size of files (ulimit -f), or set another folder.";
    case EROFS:
    case EACCES:
    case EPERM:
      return "Make the folder writable for this user, or set another one.";
    case EEXIST:
    case ENOTEMPTY:
    case ELOOP:
    case ENOTDIR:
      return "Remove or rename what is there, or set another folder.";
    case EMFILE:
    case ENFILE:
      return "Raise the limit on open files (ulimit -n).";
    default:
      return "Check the disk or the mount.";
  }
}

using DirectoryStream = std::unique_ptr<DIR, int (*)(DIR*)>;

// With an offset of its own. Null if it cannot be opened; errno has the reason.
DirectoryStream open_stream(int folder) noexcept {
  const int descriptor = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const stream = descriptor >= 0 ? ::fdopendir(descriptor) : nullptr;
  if (stream == nullptr && descriptor >= 0) ::close(descriptor);
  return {stream, ::closedir};
}

// The next name but "." and ".."; null at the end, or if reading fails, with the reason in errno, which is 0 otherwise.
const char* next_name(DIR* stream) noexcept {
  while (true) {
    errno = 0;
    const auto* entry = ::readdir(stream);
    if (entry == nullptr) return nullptr;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return entry->d_name;
  }
}

}  // namespace

void throw_checkpoint_error(std::string_view action, const std::filesystem::path& path, int error) {
  throw EnvironmentError(text("Cannot ", action, " '", path.string(), "': ", std::system_category().message(error),
                              ". ", advice_for(error)));
}

Folder::Folder(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!descriptor_.is_open()) throw_checkpoint_error("open the folder", path_, errno);
}

Folder Folder::inside(const std::string& name) const {
  auto folder = open_file(name, O_RDONLY | O_DIRECTORY);
  if (!folder.is_open()) throw_checkpoint_error("open the folder", path_ / name, errno);
  return Folder{path_ / name, std::move(folder)};
}

std::vector<std::string> Folder::names() const {
  const auto stream = open_stream(descriptor_.get());
  if (!stream) throw_checkpoint_error("list the folder", path_, errno);
  std::vector<std::string> names;
  while (const auto* name = next_name(stream.get())) names.emplace_back(name);
  if (errno != 0) throw_checkpoint_error("list the folder", path_, errno);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<struct stat> Folder::status(const std::string& name) const {
  struct stat status{};
  if (::fstatat(descriptor_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return status;
  if (errno == ENOENT) return std::nullopt;
  throw_checkpoint_error("examine", path_ / name, errno);
}

FileDescriptor Folder::open_file(const std::string& name, int flags) const {
  return FileDescriptor{::openat(descriptor_.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0666)};
}

FileDescriptor Folder::create_file(const std::string& name) const {
  auto file = open_file(name, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.is_open()) throw_checkpoint_error("create the file", path_ / name, errno);
  return file;
}

void Folder::make_folder(const std::string& name) const {
  if (::mkdirat(descriptor_.get(), name.c_str(), 0777) != 0) {
    throw_checkpoint_error("create the folder", path_ / name, errno);
  }
}

void Folder::rename(const std::string& from, const std::string& to) const {
  if (::renameat(descriptor_.get(), from.c_str(), descriptor_.get(), to.c_str()) != 0) {
    throw_checkpoint_error(text("rename '", from, "' to"), path_ / to, errno);
  }
}

void Folder::remove_file(const std::string& name) const {
  if (::unlinkat(descriptor_.get(), name.c_str(), 0) != 0)
    throw_checkpoint_error("remove the file", path_ / name, errno);
}

void Folder::sync() const {
  // Some file systems in user space store names at once, and have no fsync for folders.
  const int error = sync_descriptor(descriptor_.get());
  if (error != 0 && error != EINVAL && error != ENOTSUP) throw_checkpoint_error("store the folder", path_, error);
}

int Folder::remove_folder(const std::string& name) const noexcept {
  int reason = 0;
  {
    const FileDescriptor folder{
        ::openat(descriptor_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!folder.is_open()) return errno == ENOENT ? 0 : errno;
    const auto stream = open_stream(folder.get());
    if (!stream) return errno;
    while (const auto* file = next_name(stream.get())) {
      if (::unlinkat(folder.get(), file, 0) != 0 && errno != ENOENT) reason = errno;
    }
    if (errno != 0) reason = errno;
  }
  // After the descriptor is closed: some network file systems keep a folder that is open.
  if (::unlinkat(descriptor_.get(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
  return reason != 0 ? reason : errno;
}

void sync_and_close(FileDescriptor file, const std::filesystem::path& path) {
  if (const int error = sync_descriptor(file.get()); error != 0) throw_checkpoint_error("store the file", path, error);
  // After EINTR it is closed, too.
  if (::close(file.release()) != 0 && errno != EINTR) throw_checkpoint_error("close the file", path, errno);
}

void write_synced(const Folder& folder, const std::string& name, std::string_view bytes) {
  auto file = folder.create_file(name);
  const auto path = folder.path() / name;
  if (write_all(file.get(), bytes) < bytes.size()) throw_checkpoint_error("write to the file", path, errno);
  sync_and_close(std::move(file), path);
}

std::optional<std::string> read_small_file(const Folder& folder, const std::string& name, std::uint64_t limit_bytes) {
  const auto path = folder.path() / name;
  // O_NONBLOCK: opening a FIFO without a writer would wait for one.
  const auto file = folder.open_file(name, O_RDONLY | O_NONBLOCK);
  if (!file.is_open() && errno == ENOENT) return std::nullopt;
  if (!file.is_open()) throw_checkpoint_error("open the file", path, errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) throw_checkpoint_error("examine the file", path, errno);
  if (!S_ISREG(status.st_mode)) throw EnvironmentError(text("'", path.string(), "' is not a regular file. Remove it."));
  std::string content(std::min(static_cast<std::uint64_t>(status.st_size), limit_bytes + 1), '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const auto got = ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_checkpoint_error("read the file", path, errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  content.resize(done);
  if (content.size() > limit_bytes) {
    throw EnvironmentError(text("The file '", path.string(), "' has more than ", limit_bytes, " bytes. Remove it."));
  }
  return content;
}

}  // namespace libtrain::detail
