#include <libtrain/checkpoint/detail/input_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;  // stays in the processor's cache

[[noreturn]] void fail_to_open(const std::string& description, int code) {
  throw EnvironmentError(text(description, " cannot be read: ", std::generic_category().message(code),
                              ". Check the path and its permissions."));
}

}  // namespace

InputFile::InputFile(std::string path, std::string_view what)
    : path_(std::move(path)), description_(text(what, " '", path_, "'")) {
  // Opening a FIFO without a writer would block.
  descriptor_ = FileDescriptor{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  struct stat status{};
  if (!descriptor_.is_open() || ::fstat(descriptor_.get(), &status) != 0) fail_to_open(description_, errno);
  if (S_ISDIR(status.st_mode)) fail_to_open(description_, EISDIR);
  if (!S_ISREG(status.st_mode)) {
    throw EnvironmentError(text(description_, " is a pipe or a device. Give a regular file."));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const auto got = ::pread(descriptor_.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw EnvironmentError(text(description_, ", byte offset ", offset, ": ", std::generic_category().message(errno),
                                  ". Check the disk, or copy the file again."));
    }
    if (got == 0) {
      throw EnvironmentError(text(description_, ", byte offset ", offset, ": expected ", to.size(),
                                  " more bytes, but the file was truncated while it was read. Try again."));
    }
    offset += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
}

std::string InputFile::read(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset > size_ || bytes > size_ - offset) {
    throw EnvironmentError(text(description_, ", byte offset ", offset, ": expected ", bytes,
                                " more bytes, but the file has ", size_, ". Copy or write the file again."));
  }
  std::string content;
  try {
    content.resize(static_cast<std::size_t>(bytes));
  } catch (const std::bad_alloc&) {
    throw EnvironmentError(text(description_, ": not enough memory for ", bytes, " bytes."));
  }
  read_at(offset, std::as_writable_bytes(std::span{content}));
  return content;
}

std::uint32_t InputFile::crc32c(std::uint64_t offset, std::uint64_t bytes) const {
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(bytes, kPieceBytes)));
  std::uint32_t crc = 0;
  while (bytes > 0) {
    const std::span<std::byte> part{piece.data(), static_cast<std::size_t>(std::min(bytes, kPieceBytes))};
    read_at(offset, part);
    crc = extend_crc32c(crc, {reinterpret_cast<const char*>(part.data()), part.size()});
    offset += part.size();
    bytes -= part.size();
  }
  return crc;
}

}  // namespace libtrain::detail
