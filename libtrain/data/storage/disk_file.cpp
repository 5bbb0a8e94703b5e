#include <libtrain/data/storage/disk_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>
#include <system_error>

#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kHashedAtOnce = 1 << 20;
constexpr mode_t kMode = 0644;
constexpr std::int64_t kSecond = 1'000'000'000;  // in nanoseconds

}  // namespace

bool DiskError::is_full() const noexcept {
  return code_ == ENOSPC || code_ == EDQUOT;
}

void throw_disk_error(const std::string& action, const std::filesystem::path& path, int code) {
  throw DiskError(text("Cannot ", action, " '", path.string(), "': ", std::strerror(code), "."), code);
}

DiskFile::~DiskFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

DiskFile DiskFile::open(const std::filesystem::path& path, int flags) {
  return DiskFile{::open(path.c_str(), flags | O_CLOEXEC, kMode)};
}

std::uint64_t DiskFile::size() const {
  struct stat status{};
  if (fstat(descriptor_, &status) != 0) throw_disk_error("ask for the size of", "an open file", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

bool DiskFile::is_linked() const {
  struct stat status{};
  return fstat(descriptor_, &status) == 0 && status.st_nlink > 0;
}

bool DiskFile::is_at(const std::filesystem::path& path) const {
  struct stat mine{};
  struct stat there{};
  if (fstat(descriptor_, &mine) != 0 || stat(path.c_str(), &there) != 0) return false;
  return mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

std::optional<std::size_t> DiskFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const auto got = pread(descriptor_, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

int DiskFile::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto put = pwrite(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    if (put == 0) return ENOSPC;
    done += static_cast<std::size_t>(put);
  }
  return 0;
}

void DiskFile::resize(std::uint64_t bytes) const {
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) throw_disk_error("resize", "an open file", errno);
}

int DiskFile::allocate(std::uint64_t bytes) const {
  if (bytes == 0) return 0;
  while (fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    return errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? errno : 0;
  }
  return 0;
}

DiskFile open_to_write(const std::filesystem::path& path, int flags) {
  auto file = DiskFile::open(path, O_RDWR | O_CREAT | flags);
  if (!file.is_open()) throw_disk_error("write", path, errno);
  return file;
}

std::optional<ContentHash> hash_of_beginning(const DiskFile& file, std::uint64_t bytes) {
  const auto block_bytes = static_cast<std::size_t>(std::min(bytes, kHashedAtOnce));
  const auto block = std::make_unique_for_overwrite<std::byte[]>(block_bytes);
  ContentHasher hasher;
  for (std::uint64_t offset = 0; offset < bytes;) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(bytes - offset, block_bytes));
    const std::span part{block.get(), wanted};
    if (file.read(offset, part) != wanted) return std::nullopt;
    hasher.update(part);
    offset += wanted;
  }
  return hasher.digest();
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_disk_error("make the folder", path, error.value());
}

std::optional<std::string> read_small_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  const auto file = DiskFile::open(path, O_RDONLY);
  struct stat status{};
  if (!file.is_open() || fstat(file.descriptor(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > limit_bytes) return std::nullopt;
  std::string content(size, '\0');
  const auto got = file.read(0, std::as_writable_bytes(std::span{content.data(), content.size()}));
  if (!got) return std::nullopt;
  content.resize(*got);
  return content;
}

std::int64_t wall_clock_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

void set_modification_time(const DiskFile& file, std::int64_t nanoseconds) noexcept {
  const timespec time{.tv_sec = nanoseconds / kSecond, .tv_nsec = nanoseconds % kSecond};
  const std::array<timespec, 2> times{time, time};
  futimens(file.descriptor(), times.data());
}

std::optional<std::int64_t> modification_time(const std::filesystem::path& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return status.st_mtim.tv_sec * kSecond + status.st_mtim.tv_nsec;
}

std::uint64_t available_bytes(const std::filesystem::path& path) {
  struct statvfs status{};
  while (statvfs(path.c_str(), &status) != 0) {
    if (errno != EINTR) throw_disk_error("ask for the free space of", path, errno);
  }
  return static_cast<std::uint64_t>(status.f_bavail) * static_cast<std::uint64_t>(status.f_frsize);
}

std::uint64_t disk_bytes(std::uint64_t bytes) {
  if (bytes > std::numeric_limits<std::uint64_t>::max() - kBlockBytes) return std::numeric_limits<std::uint64_t>::max();
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

}  // namespace libtrain::data::detail
