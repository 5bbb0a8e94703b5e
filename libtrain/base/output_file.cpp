#include <libtrain/base/output_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr int kMaxLinks = 40;  // as the kernel has it

// Random, as process numbers repeat on the machines that share a folder.
std::string temporary_name(const std::string& path) {
  std::random_device random;
  return text(path, ".", random(), "-", random(), ".partial");
}

[[noreturn]] void throw_error(std::string_view action, const std::string& path, int error) {
  if (error == ENXIO) {
    throw EnvironmentError(text("Cannot ", action, " '", path,
                                "': it is a FIFO that no process reads from, or a socket. Start what reads from it "
                                "first, or name another file."));
  }
  throw EnvironmentError(text("Cannot ", action, " '", path, "': ", std::system_category().message(error),
                              ". Make room there, or name another file."));
}

// What a path leads to.
struct Target {
  std::string path = {};
  bool is_replaced = true;             // by a new file
  std::optional<int> descriptor = {};  // of this process, whose link it is
};

// The descriptor of this process for which the link stands, as /dev/stdout does in the end.
std::optional<int> own_descriptor(const fs::path& link) {
  std::error_code error;
  if (fs::canonical(link.parent_path(), error) != fs::canonical("/proc/self/fd", error) || error) return std::nullopt;
  const auto name = link.filename().string();
  int number = 0;
  const auto end = name.data() + name.size();
  if (std::from_chars(name.data(), end, number).ptr != end) return std::nullopt;
  return number;
}

Target target_of(const std::string& path) {
  fs::path current = path;
  for (int links = 0; links <= kMaxLinks; ++links) {
    struct stat status{};
    if (::lstat(current.c_str(), &status) != 0) {
      if (errno == ENOENT) return {.path = current.string()};
      throw_error("write", path, errno);
    }
    if (S_ISREG(status.st_mode)) return {.path = current.string()};
    if (S_ISDIR(status.st_mode)) throw_error("write", path, EISDIR);
    if (!S_ISLNK(status.st_mode)) return {.path = current.string(), .is_replaced = false};
    if (const auto number = own_descriptor(current)) return {.is_replaced = false, .descriptor = number};
    std::error_code error;
    const auto next = fs::read_symlink(current, error);
    if (error) throw_error("write", path, error.value());
    current = current.parent_path() / next;
  }
  throw_error("write", path, ELOOP);
}

int open_as_it_is(const Target& target) {
  if (target.descriptor) return ::fcntl(*target.descriptor, F_DUPFD_CLOEXEC, 0);
  // A FIFO that no process reads from would keep this one waiting.
  const int descriptor = ::open(target.path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  auto target = target_of(path_);
  if (target.is_replaced) {
    replaced_ = std::move(target.path);
    temporary_ = temporary_name(replaced_);
    descriptor_ = FileDescriptor{::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  } else {
    descriptor_ = FileDescriptor{open_as_it_is(target)};
  }
  if (!descriptor_.is_open()) fail("write", errno);
}

OutputFile::~OutputFile() {
  // First, as network file systems keep what is removed while it is open.
  descriptor_.reset();
  if (!committed_ && !temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::require_writable(const std::string& path) {
  const auto target = target_of(path);
  if (target.is_replaced) {
    const OutputFile begun{path};
  } else if (!target.descriptor && ::access(target.path.c_str(), W_OK) != 0) {
    // Not opened: what reads from a FIFO would take the end of this for the end of all.
    throw_error("write", path, errno);
  }
}

bool OutputFile::replaces(const std::string& path) {
  return target_of(path).is_replaced;
}

void OutputFile::write(std::string_view bytes) {
  require_sound();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    write_through(bytes);
  } else {
    buffer_ += bytes;
  }
  size_ += bytes.size();
}

void OutputFile::commit() {
  require_sound();
  flush();
  // A pipe or a device has nothing to store.
  if (::fsync(descriptor_.get()) != 0 && errno != EINVAL && errno != EROFS) fail("store", errno);
  // A remote mount may report only now that it could not write.
  if (::close(descriptor_.release()) != 0) fail("close", errno);
  if (!replaced_.empty() && std::rename(temporary_.c_str(), replaced_.c_str()) != 0) fail("rename", errno);
  committed_ = true;
}

void OutputFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void OutputFile::write_through(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write", written == 0 ? ENOSPC : errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void OutputFile::require_sound() {
  if (error_ != 0) fail("write", error_);
}

void OutputFile::fail(std::string_view action, int error) {
  error_ = error;
  throw_error(action, path_, error);
}

}  // namespace libtrain::detail
