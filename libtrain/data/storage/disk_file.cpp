#include <libtrain/data/storage/disk_file.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kHashedAtOnce = 1 << 20;
constexpr mode_t kMode = 0644;
constexpr std::int64_t kSecond = 1'000'000'000;  // in nanoseconds
constexpr Deadline::Clock::duration kFirstPause = std::chrono::microseconds{500};
constexpr Deadline::Clock::duration kLongestPause = std::chrono::milliseconds{20};

// Advice for an error code that is not about the file; empty for the few codes that are. Any other code of a disk, a
// network mount or a FUSE server is not about the file.
std::string_view advice_for(int code) {
  switch (code) {
    case 0:
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOENT:
    case ENOTDIR:
    case ENXIO:  // a socket
    case EOVERFLOW:
      return {};
    case EMFILE:
      return "This process has reached its limit of open files. Raise the limit (ulimit -n).";
    case ENFILE:
      return "This machine has reached its limit of open files. Raise the limit (sysctl fs.file-max).";
    case ENOMEM:
      return "The system is out of memory. Free memory on this host.";
    case EACCES:  // also if the key or ticket of a mount has expired
    case EPERM:
      return "Give this user read permission. If every file of the mount is refused, check whether its credentials "
             "have expired.";
    default:
      return "The disk or mount of this file reports an error. See the kernel log (dmesg).";
  }
}

// For the times of the last access and of the last modification.
std::array<timespec, 2> both_times(std::int64_t nanoseconds) {
  const timespec time{.tv_sec = nanoseconds / kSecond, .tv_nsec = nanoseconds % kSecond};
  return {time, time};
}

}  // namespace

bool DiskError::is_full() const noexcept {
  return code_ == ENOSPC || code_ == EDQUOT;
}

void throw_disk_error(const std::string& action, const std::filesystem::path& path, int code) {
  throw DiskError(text("Cannot ", action, " '", path.string(), "': ", std::strerror(code), "."), code);
}

void throw_if_not_of_the_file(const std::string& subject, int code) {
  const auto advice = advice_for(code);
  if (advice.empty()) return;
  throw StorageUnavailable(text(subject, ": ", std::generic_category().message(code), ". ", advice));
}

DiskFile DiskFile::open(std::filesystem::path path, int flags) {
  DiskFile file;
  file.path_ = std::move(path);
  // The last statement, because nothing after it may change errno.
  file.descriptor_ = libtrain::detail::FileDescriptor{::open(file.path_.c_str(), flags | O_CLOEXEC, kMode)};
  return file;
}

std::uint64_t DiskFile::size() const {
  struct stat status{};
  if (fstat(descriptor(), &status) != 0) throw_disk_error("get the size of", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

bool DiskFile::is_linked() const {
  struct stat status{};
  return fstat(descriptor(), &status) == 0 && status.st_nlink > 0;
}

bool DiskFile::is_at(const std::filesystem::path& path) const {
  struct stat mine{};
  struct stat there{};
  if (fstat(descriptor(), &mine) != 0 || stat(path.c_str(), &there) != 0) return false;
  return mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

std::optional<std::size_t> DiskFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const auto got = pread(descriptor(), to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

bool DiskFile::read_at_once(std::uint64_t offset, std::span<std::byte> first, std::span<std::byte> second) const {
  const std::array parts{iovec{first.data(), first.size()}, iovec{second.data(), second.size()}};
  const auto got = preadv(descriptor(), parts.data(), parts.size(), static_cast<off_t>(offset));
  return got >= 0 && static_cast<std::size_t>(got) == first.size() + second.size();
}

int DiskFile::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto put = pwrite(descriptor(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    if (put == 0) return ENOSPC;
    done += static_cast<std::size_t>(put);
  }
  return 0;
}

void DiskFile::resize(std::uint64_t bytes) const {
  if (ftruncate(descriptor(), static_cast<off_t>(bytes)) != 0) throw_disk_error("resize", path_, errno);
}

int DiskFile::allocate(std::uint64_t bytes) const {
  if (bytes == 0) return 0;
  while (fallocate(descriptor(), 0, 0, static_cast<off_t>(bytes)) != 0) {
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

int sync_file_system(const DiskFile& file) {
  return ::syncfs(file.descriptor()) == 0 ? 0 : errno;
}

void sync_folder(const std::filesystem::path& path) {
  const auto folder = DiskFile::open(path, O_RDONLY | O_DIRECTORY);
  if (!folder.is_open()) throw_disk_error("open the folder", path, errno);
  // File systems that do not sync folders return EINVAL.
  if (::fsync(folder.descriptor()) != 0 && errno != EINVAL) throw_disk_error("write the folder", path, errno);
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
  if (error) throw_disk_error("create the folder", path, error.value());
}

std::int64_t wall_clock_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return nanoseconds_of(now);
}

std::int64_t nanoseconds_of(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

void set_modification_time(const DiskFile& file, std::int64_t nanoseconds) noexcept {
  futimens(file.descriptor(), both_times(nanoseconds).data());
}

void set_modification_time(const std::filesystem::path& path, std::int64_t nanoseconds) noexcept {
  utimensat(AT_FDCWD, path.c_str(), both_times(nanoseconds).data(), 0);
}

std::optional<std::int64_t> modification_time(const std::filesystem::path& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return nanoseconds_of(status.st_mtim);
}

std::uint64_t available_bytes(const std::filesystem::path& path) {
  struct statvfs status{};
  while (statvfs(path.c_str(), &status) != 0) {
    if (errno != EINTR) throw_disk_error("get the free space of", path, errno);
  }
  return static_cast<std::uint64_t>(status.f_bavail) * static_cast<std::uint64_t>(status.f_frsize);
}

std::uint64_t disk_bytes(std::uint64_t bytes) {
  if (bytes > std::numeric_limits<std::uint64_t>::max() - kBlockBytes) return std::numeric_limits<std::uint64_t>::max();
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

bool try_lock(const DiskFile& file, LockMode mode) {
  const int operation = (mode == LockMode::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  while (flock(file.descriptor(), operation) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw_disk_error("lock", file.path(), errno);
  }
  return true;
}

bool lock_within(const DiskFile& file, LockMode mode, const Deadline& deadline, const std::stop_token& stop) {
  // Polls, because a blocking flock() has no deadline and ignores stop requests.
  auto pause = kFirstPause;
  while (!try_lock(file, mode)) {
    if (deadline.expired() || stop.stop_requested()) return false;
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
    pause = std::min(2 * pause, kLongestPause);
  }
  return true;
}

void unlock(const DiskFile& file) noexcept {
  flock(file.descriptor(), LOCK_UN);
}

std::optional<ContentHash> download(const File& from, const DiskFile& to, const DownloadOptions& options,
                                    const std::stop_token& stop) {
  const auto check = [&](int error) {
    if (error != 0) throw_disk_error("write", to.path(), error);
  };
  const std::uint64_t size = from.size();
  const auto block_bytes = static_cast<std::size_t>(std::min(size, options.block_bytes));
  const auto block = std::make_unique_for_overwrite<std::byte[]>(block_bytes);
  check(to.allocate(size));
  ContentHasher hasher;
  for (std::uint64_t offset = 0; offset < size;) {
    if (stop.stop_requested()) return std::nullopt;
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(size - offset, block_bytes));
    const std::span bytes{block.get(), count};
    from.read_at(offset, bytes);
    hasher.update(bytes);
    check(options.write ? options.write(to, offset, bytes) : to.write(offset, bytes));
    offset += count;
    if (options.progress) options.progress(count);
  }
  return hasher.digest();
}

}  // namespace libtrain::data::detail
