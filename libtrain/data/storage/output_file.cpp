#include <libtrain/data/storage/output_file.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

// Random, as process numbers repeat on the machines that share a folder.
std::string temporary_name(const std::string& path) {
  std::random_device random;
  return text(path, ".", random(), "-", random(), ".partial");
}

}  // namespace

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      temporary_(temporary_name(path_)),
      descriptor_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!descriptor_.is_open()) fail("create", errno);
}

OutputFile::~OutputFile() {
  // First, as network file systems keep what is removed while it is open.
  descriptor_.reset();
  if (!committed_) ::unlink(temporary_.c_str());
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
  if (::fsync(descriptor_.get()) != 0) fail("store", errno);
  // A remote mount may report only now that it could not write.
  if (::close(descriptor_.release()) != 0) fail("close", errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename", errno);
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
  throw EnvironmentError(text("Cannot ", action, " the file '", path_, "' (as '", temporary_,
                              "' until it is complete): ", std::system_category().message(error), "."));
}

}  // namespace libtrain::data::detail
