#include <libtrain/data/storage/detail/local_storage.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/location.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::data::detail {

namespace {

// FileInfo::version of a local file.
std::string local_version(const struct stat& status) {
  return text(detail::nanoseconds_of(status.st_mtim), '-', detail::nanoseconds_of(status.st_ctim), '-', status.st_size,
              '-', status.st_ino);
}

[[noreturn]] void fail_at(const std::string& path, std::uint64_t offset, const std::string& expected_and_found) {
  throw EnvironmentError(text("File '", path, "', byte offset ", offset, ": expected ", expected_and_found, "."));
}

[[noreturn]] void fail_at(const std::string& path, std::uint64_t offset, std::string_view expected, int code) {
  detail::throw_if_not_of_the_file(text("File '", path, "', byte offset ", offset), code);
  fail_at(path, offset, text(expected, ", found: ", std::generic_category().message(code)));
}

constexpr std::string_view kReadableFile = "a regular file that may be read";

class LocalFile final : public File {
 public:
  LocalFile(std::string path, detail::DiskFile file, const struct stat& status)
      : path_(std::move(path)),
        file_(std::move(file)),
        size_(static_cast<std::uint64_t>(status.st_size)),
        version_(local_version(status)) {}

  const std::string& name() const override { return path_; }
  std::uint64_t size() const override { return size_; }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    detail::require_range(*this, offset, to.size());
    const auto got = file_.read(offset, to);
    const int code = errno;
    if (!got) fail_at(path_, offset, text(to.size(), " more bytes"), code);
    if (*got < to.size()) fail_for_end(offset + *got, to.size() - *got);
  }

  void read_parts_at(std::uint64_t offset, std::span<std::byte> first, std::span<std::byte> second) const override {
    detail::require_range(*this, offset, first.size() + second.size());
    if (!file_.read_at_once(offset, first, second)) File::read_parts_at(offset, first, second);
  }

 private:
  [[noreturn]] void fail_for_end(std::uint64_t offset, std::size_t missing) const {
    struct stat now{};
    const bool known = ::fstat(file_.descriptor(), &now) == 0;
    if (known && local_version(now) != version_) {
      fail_at(path_, offset,
              text(missing, " more bytes, but the file has changed since it was opened: it had ", size_,
                   " bytes and has ", now.st_size));
    }
    fail_at(path_, offset, text(missing, " more bytes, found none"));
  }

  std::string path_;
  detail::DiskFile file_;
  std::uint64_t size_;
  std::string version_;
};

constexpr std::size_t kMaxFolderDepth = 200;
constexpr std::string_view kOfTheFileSystem = "lost+found";  // at the root of ext4; only root may open it

[[noreturn]] void fail(std::string_view what, const std::string& path, const std::string& found) {
  throw EnvironmentError(text("Expected a readable ", what, " at '", path, "', found: ", found, "."));
}

[[noreturn]] void fail(std::string_view what, const std::string& path, int code) {
  detail::throw_if_not_of_the_file(text("The ", what, " '", path, "' cannot be read"), code);
  fail(what, path, std::generic_category().message(code));
}

FileInfo info_of(std::string path, const struct stat& status) {
  return {
      .path = std::move(path), .size = static_cast<std::uint64_t>(status.st_size), .version = local_version(status)};
}

/// Identifies a folder, independent of the links to it.
using FolderIdentity = std::pair<dev_t, ino_t>;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

class Listing {
 public:
  explicit Listing(std::string root) : root_(std::move(root)) {}

  /// Adds the files below `folder`, a path below the root or "".
  void add(const std::string& folder) {
    const auto path = path_of(folder);
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) fail("folder", path, errno);
    add(folder, {status.st_dev, status.st_ino});
  }

  /// The names of the folders in `folder`, sorted.
  std::vector<std::string> folders_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& [path, identity] : add_files(folder)) names.push_back(path.substr(path.rfind('/') + 1));
    std::sort(names.begin(), names.end());
    return names;
  }

  std::vector<FileInfo> take_sorted() {
    std::sort(files_.begin(), files_.end(), [](const auto& left, const auto& right) { return left.path < right.path; });
    return std::move(files_);
  }

 private:
  std::string path_of(const std::string& folder) const { return folder.empty() ? root_ : text(root_, '/', folder); }

  void add(const std::string& folder, const FolderIdentity& identity) {
    if (std::find(above_.begin(), above_.end(), identity) != above_.end()) return;
    if (above_.size() == kMaxFolderDepth) {
      fail("folder", path_of(folder), text("more than ", kMaxFolderDepth, " folders inside each other"));
    }
    above_.push_back(identity);
    for (const auto& [inner, inner_identity] : add_files(folder)) {
      const auto before = files_.size();
      add(inner, inner_identity);
      if (files_.size() == before) files_.push_back({.path = inner + '/', .kind = FileKind::empty_folder});
    }
    above_.pop_back();
  }

  /// Adds the files directly in `folder`, and returns its folders: it is closed before they are opened.
  std::vector<std::pair<std::string, FolderIdentity>> add_files(const std::string& folder) {
    const auto path = path_of(folder);
    const std::unique_ptr<DIR, CloseFolder> entries{::opendir(path.c_str())};
    if (!entries) fail("folder", path, errno);
    std::vector<std::pair<std::string, FolderIdentity>> folders;
    while (const auto* entry = next_entry(entries.get(), path)) {
      const std::string_view name{entry->d_name};
      if (name == "." || name == "..") continue;
      struct stat status{};
      auto inner = folder.empty() ? std::string{name} : text(folder, '/', name);
      if (::fstatat(::dirfd(entries.get()), entry->d_name, &status, 0) != 0) {
        const int code = errno;
        if (code != ENOENT && code != ELOOP) fail("file", path_of(inner), code);
        // A broken link, a link to itself, or a file that was deleted after it was listed.
        const bool is_link = ::fstatat(::dirfd(entries.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0;
        if (is_link) files_.push_back({.path = std::move(inner), .kind = FileKind::unreadable});
      } else if (S_ISREG(status.st_mode)) {
        files_.push_back(info_of(std::move(inner), status));
      } else if (S_ISDIR(status.st_mode)) {
        if (name == kOfTheFileSystem && above_.size() <= 1) continue;
        folders.emplace_back(std::move(inner), FolderIdentity{status.st_dev, status.st_ino});
      } else {
        files_.push_back({.path = std::move(inner), .kind = FileKind::unreadable});
      }
    }
    return folders;
  }

  static const dirent* next_entry(DIR* entries, const std::string& path) {
    errno = 0;
    const auto* entry = ::readdir(entries);
    if (entry == nullptr && errno != 0) fail("folder", path, errno);
    return entry;
  }

  std::string root_;
  std::vector<FileInfo> files_;
  std::vector<FolderIdentity> above_;
};

}  // namespace

bool is_inside(const std::filesystem::path& folder, const Storage& storage) {
  namespace fs = std::filesystem;
  const fs::path root = storage.identity();  // of a local folder: its absolute path without links
  if (!root.is_absolute()) return false;
  const auto is_in_root = [&](const fs::path& path) {
    const auto below = fs::weakly_canonical(path).lexically_relative(root);
    return !below.empty() && *below.begin() != "..";
  };
  const auto whole = fs::absolute(folder);
  if (is_in_root(whole)) return true;
  // Or behind a link there: listings follow links.
  for (auto above = whole.lexically_normal(); above.has_relative_path(); above = above.parent_path())
    if (is_in_root(above)) return true;
  return false;
}

std::unique_ptr<const File> open_local_file(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO waits for a writer.
  auto file = detail::DiskFile::open(path, O_RDONLY | O_NONBLOCK);
  if (!file.is_open()) fail_at(path, 0, kReadableFile, errno);
  struct stat status{};
  if (::fstat(file.descriptor(), &status) != 0) fail_at(path, 0, kReadableFile, errno);
  if (!S_ISREG(status.st_mode)) {
    fail_at(path, 0, text(kReadableFile, ", found: ", S_ISDIR(status.st_mode) ? "a folder" : "something else"));
  }
  return std::make_unique<LocalFile>(path, std::move(file), status);
}

LocalStorage::LocalStorage(const std::string& root) : root_(detail::without_trailing_slashes(root)) {
  struct stat status{};
  if (::stat(root_.c_str(), &status) != 0) fail("folder", root_, errno);
  if (!S_ISDIR(status.st_mode)) fail("folder", root_, S_ISREG(status.st_mode) ? "a file" : "something else");
  std::error_code error;
  identity_ = std::filesystem::canonical(root_, error).string();
  if (error) fail("folder", root_, error.value());
  local_identity_ = text(identity_, ' ', libtrain::detail::boot_id(), ' ', status.st_dev, ' ', status.st_ino);
}

std::string LocalStorage::path_of(const std::string& path) const {
  detail::require_path_below(root_, path);
  return text(root_ == "/" ? "" : root_, '/', path);
}

std::unique_ptr<const File> LocalStorage::open(const std::string& path) const {
  return detail::open_local_file(path_of(path));
}

FileInfo LocalStorage::info(const std::string& path) const {
  const auto full = path_of(path);
  struct stat status{};
  if (::stat(full.c_str(), &status) != 0) fail("file", full, errno);
  if (!S_ISREG(status.st_mode)) fail("file", full, S_ISDIR(status.st_mode) ? "a folder" : "something else");
  return info_of(path, status);
}

std::vector<FileInfo> LocalStorage::list(const std::string& folder) const {
  if (!folder.empty()) detail::require_path_below(root_, folder);
  Listing listing{root_};
  listing.add(folder);
  return listing.take_sorted();
}

std::optional<std::vector<std::string>> LocalStorage::folders(const std::string& folder) const {
  if (!folder.empty()) detail::require_path_below(root_, folder);
  return Listing{root_}.folders_in(folder);
}

}  // namespace libtrain::data::detail
