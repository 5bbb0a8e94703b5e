#include <libtrain/data/storage/local_file.hpp>

#include <fcntl.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::data::detail {

namespace {

std::string place(const std::string& path, std::uint64_t offset) {
  return text("File '", path, "', byte offset ", offset);
}

[[noreturn]] void fail(const std::string& path, std::uint64_t offset, const std::string& expected_and_found) {
  throw EnvironmentError(text(place(path, offset), ": ", expected_and_found, "."));
}

[[noreturn]] void fail_to_open(const std::string& path, const std::string& found) {
  fail(path, 0, text("expected a regular file that may be read, found: ", found));
}

std::string meaning(int code) {
  return std::generic_category().message(code);
}

[[noreturn]] void fail_to_open(const std::string& path, int code) {
  throw_if_not_of_the_file(place(path, 0), code);
  fail_to_open(path, meaning(code));
}

[[noreturn]] void fail_to_read(const std::string& path, std::uint64_t offset, std::size_t count, int code) {
  throw_if_not_of_the_file(place(path, offset), code);
  fail(path, offset, text("expected ", count, " more bytes, found: ", meaning(code)));
}

class LocalFile final : public File {
 public:
  LocalFile(std::string path, DiskFile file, const struct stat& status)
      : path_(std::move(path)),
        file_(std::move(file)),
        size_(static_cast<std::uint64_t>(status.st_size)),
        version_(local_version(status)) {}

  const std::string& name() const override { return path_; }
  std::uint64_t size() const override { return size_; }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    require_range(*this, offset, to.size());
    const auto got = file_.read(offset, to);
    if (!got) fail_to_read(path_, offset, to.size(), errno);
    if (*got < to.size()) fail_for_end(offset + *got, to.size() - *got);
  }

 private:
  [[noreturn]] void fail_for_end(std::uint64_t offset, std::size_t missing) const {
    struct stat now{};
    const bool known = ::fstat(file_.descriptor(), &now) == 0;
    if (known && local_version(now) != version_) {
      fail(path_, offset,
           text("expected ", missing, " more bytes, but the file was changed since it was opened: it had ", size_,
                " bytes and has ", now.st_size));
    }
    fail(path_, offset, text("expected ", missing, " more bytes, found none"));
  }

  std::string path_;
  DiskFile file_;
  std::uint64_t size_;
  std::string version_;
};

}  // namespace

std::unique_ptr<const File> open_local_file(const std::string& path) {
  // Opening a FIFO would wait for somebody to write to it.
  auto file = DiskFile::open(path, O_RDONLY | O_NONBLOCK);
  if (!file.is_open()) fail_to_open(path, errno);
  struct stat status{};
  if (::fstat(file.descriptor(), &status) != 0) fail_to_open(path, errno);
  if (!S_ISREG(status.st_mode)) fail_to_open(path, S_ISDIR(status.st_mode) ? "a folder" : "something else");
  return std::make_unique<LocalFile>(path, std::move(file), status);
}

std::string local_version(const struct stat& status) {
  return text(nanoseconds_of(status.st_mtim), '-', nanoseconds_of(status.st_ctim), '-', status.st_size, '-',
              status.st_ino);
}

}  // namespace libtrain::data::detail
