#include <libtrain/base/output_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr int kMaxLinks = 40;  // the kernel's own limit

// Random, because process numbers repeat on the machines that share a folder.
std::string temporary_name(const std::string& path) {
  std::random_device random;
  return text(path, ".", random(), "-", random(), ".partial");
}

[[noreturn]] void throw_error(std::string_view action, const std::string& path, int error) {
  if (error == ENXIO) {
    throw EnvironmentError(text("Cannot ", action, " '", path,
                                "': it is a FIFO without a reader, or a socket. Start its reader first, or give "
                                "another file."));
  }
  throw EnvironmentError(text("Cannot ", action, " '", path, "': ", std::system_category().message(error),
                              ". Free disk space there, or give another file."));
}

// The file that a path refers to.
struct Target {
  std::string path = {};
  bool is_replaced = true;             // by a new file
  std::optional<int> descriptor = {};  // of this process, whose link it is
};

// The descriptor of this process that the link refers to, as /dev/stdout does.
std::optional<int> own_descriptor(const fs::path& link) {
  std::error_code error;
  if (fs::canonical(link.parent_path(), error) != fs::canonical("/proc/self/fd", error) || error) return std::nullopt;
  return parse_decimal(link.filename().string(), 0, std::numeric_limits<int>::max());
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

int open_without_replacing(const Target& target) {
  if (target.descriptor) return ::fcntl(*target.descriptor, F_DUPFD_CLOEXEC, 0);
  // Opening a FIFO without a reader would block.
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
    descriptor_ = FileDescriptor{open_without_replacing(target)};
  }
  if (!descriptor_.is_open()) fail("write", errno);
}

OutputFile::~OutputFile() {
  // First, because network file systems keep a file that is removed while it is open.
  descriptor_.reset();
  if (!committed_ && !temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::require_writable(const std::string& path) {
  const auto target = target_of(path);
  if (target.is_replaced) {
    const OutputFile begun{path};
  } else if (!target.descriptor && ::access(target.path.c_str(), W_OK) != 0) {
    // Not opened: closing it again would be the end of file for the reader of a FIFO.
    throw_error("write", path, errno);
  }
}

bool OutputFile::replaces(const std::string& path) {
  return target_of(path).is_replaced;
}

void OutputFile::write(std::string_view bytes) {
  require_no_error();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    write_through(bytes);
  } else {
    buffer_ += bytes;
  }
  size_ += bytes.size();
}

void OutputFile::commit() {
  require_no_error();
  flush();
  // fsync fails on pipes and devices, which need none.
  if (::fsync(descriptor_.get()) != 0 && errno != EINVAL && errno != EROFS) fail("store", errno);
  // A network file system may report a failed write only here.
  if (::close(descriptor_.release()) != 0) fail("close", errno);
  if (!replaced_.empty() && std::rename(temporary_.c_str(), replaced_.c_str()) != 0) fail("rename", errno);
  committed_ = true;
}

void OutputFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void OutputFile::write_through(std::string_view bytes) {
  if (write_all(descriptor_.get(), bytes) < bytes.size()) fail("write", errno);
}

void OutputFile::require_no_error() {
  if (error_ != 0) fail("write", error_);
}

void OutputFile::fail(std::string_view action, int error) {
  error_ = error;
  throw_error(action, path_, error);
}

}  // namespace libtrain::detail
