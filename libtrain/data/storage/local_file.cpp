#include <libtrain/data/storage/local_file.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

[[noreturn]] void fail(const std::string& path, std::uint64_t offset, const std::string& expected_and_found) {
  throw EnvironmentError(text("File '", path, "', byte offset ", offset, ": ", expected_and_found, "."));
}

[[noreturn]] void fail_to_open(const std::string& path, const std::string& found) {
  fail(path, 0, text("expected a readable regular file, found: ", found));
}

std::string meaning(int code) {
  return std::generic_category().message(code);
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }

  int value() const { return value_; }

 private:
  int value_;
};

class LocalFile final : public File {
 public:
  LocalFile(std::string path, Descriptor descriptor, const struct stat& status)
      : path_(std::move(path)),
        descriptor_(std::move(descriptor)),
        size_(static_cast<std::uint64_t>(status.st_size)),
        version_(local_version(status)) {}

  const std::string& name() const override { return path_; }
  std::uint64_t size() const override { return size_; }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset > size_ || to.size() > size_ - offset) {
      fail(path_, offset,
           text("expected ", to.size(), " more bytes, found ", offset > size_ ? std::uint64_t{0} : size_ - offset));
    }
    while (!to.empty()) {
      const auto count = ::pread(descriptor_.value(), to.data(), to.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(path_, offset, text("expected ", to.size(), " more bytes, found: ", meaning(errno)));
      if (count == 0) fail_for_end(offset, to.size());
      offset += static_cast<std::uint64_t>(count);
      to = to.subspan(static_cast<std::size_t>(count));
    }
  }

 private:
  [[noreturn]] void fail_for_end(std::uint64_t offset, std::size_t missing) const {
    struct stat now{};
    const bool known = ::fstat(descriptor_.value(), &now) == 0;
    if (known && local_version(now) != version_) {
      fail(path_, offset,
           text("expected ", missing, " more bytes, but the file was changed since it was opened: it had ", size_,
                " bytes and has ", now.st_size));
    }
    fail(path_, offset, text("expected ", missing, " more bytes, found none"));
  }

  std::string path_;
  Descriptor descriptor_;
  std::uint64_t size_;
  std::string version_;
};

}  // namespace

std::unique_ptr<const File> open_local_file(const std::string& path) {
  // Opening a FIFO would wait for somebody to write to it.
  Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.value() < 0) fail_to_open(path, meaning(errno));
  struct stat status{};
  if (::fstat(descriptor.value(), &status) != 0) fail_to_open(path, meaning(errno));
  if (!S_ISREG(status.st_mode)) fail_to_open(path, S_ISDIR(status.st_mode) ? "a folder" : "something else");
  return std::make_unique<LocalFile>(path, std::move(descriptor), status);
}

std::string local_version(const struct stat& status) {
  const auto nanoseconds = static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
                           static_cast<std::int64_t>(status.st_mtim.tv_nsec);
  return text(nanoseconds, '-', status.st_size, '-', status.st_ino);
}

}  // namespace libtrain::data::detail
