#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// An operation on the local disk failed: it is full, read-only or damaged. A caller that can read the data elsewhere
/// may continue without the disk.
class DiskError : public EnvironmentError {
 public:
  DiskError(const std::string& message, int code) : EnvironmentError(message), code_(code) {}

  bool is_full() const noexcept;

 private:
  int code_;
};

/// Throws DiskError: "Cannot `action` '`path`': meaning of the error code."
[[noreturn]] void throw_disk_error(const std::string& action, const std::filesystem::path& path, int code);

/// Returns if the error code of a read is about the file itself: it is missing, not a regular file, or its name is
/// invalid. For any other error (failing disk or mount, no read permission, too many open files) it throws
/// StorageUnavailable: "`subject`: meaning of the code. Advice."
void throw_if_not_of_the_file(const std::string& subject, int code);

/// Owns an open file on a local disk. Offsets and lengths are bytes.
class DiskFile {
 public:
  DiskFile() = default;

  /// As open(2) with these flags and O_CLOEXEC. If that fails, the result is not open and errno has the error code.
  static DiskFile open(std::filesystem::path path, int flags);

  bool is_open() const { return descriptor_.is_open(); }
  int descriptor() const { return descriptor_.get(); }

  /// The path that was opened, for messages; the file may have been renamed since.
  const std::filesystem::path& path() const { return path_; }

  /// Throws DiskError.
  std::uint64_t size() const;

  /// Whether the file has not been unlinked.
  bool is_linked() const;

  /// Whether `path` names this file.
  bool is_at(const std::filesystem::path& path) const;

  /// The number of bytes read to `to`: fewer than its size at the end of the file. std::nullopt if reading fails; errno
  /// has the error code.
  std::optional<std::size_t> read(std::uint64_t offset, std::span<std::byte> to) const;

  /// Whether a single system call filled `first` and then `second`. It may fail when read() would succeed.
  bool read_at_once(std::uint64_t offset, std::span<std::byte> first, std::span<std::byte> second) const;

  /// 0, or the error code if writing fails.
  int write(std::uint64_t offset, std::span<const std::byte> bytes) const;
  int write(std::uint64_t offset, std::string_view bytes) const {
    return write(offset, std::as_bytes(std::span{bytes.data(), bytes.size()}));
  }

  /// Throws DiskError.
  void resize(std::uint64_t bytes) const;

  /// Allocates disk space for the first `bytes` bytes. Returns 0, also if the file system cannot allocate in advance,
  /// or the error code.
  int allocate(std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  libtrain::detail::FileDescriptor descriptor_;
};

/// Opens for reading and writing, and creates the file if it does not exist; `flags` are added to those of open(2).
/// Throws DiskError.
DiskFile open_to_write(const std::filesystem::path& path, int flags = 0);

/// Syncs the file system that contains `file`. Returns 0 or the error code, also of an earlier write that never reached
/// the disk.
int sync_file_system(const DiskFile& file);

/// Syncs the names in a folder. Throws DiskError.
void sync_folder(const std::filesystem::path& path);

/// The hash of the first `bytes` bytes of a file; std::nullopt if it is shorter or cannot be read.
std::optional<ContentHash> hash_of_beginning(const DiskFile& file, std::uint64_t bytes);

/// Creates the folder and its parents. Throws DiskError.
void make_folder(const std::filesystem::path& path);

/// Now, in nanoseconds since 1970.
std::int64_t wall_clock_nanoseconds();

/// `time` in nanoseconds since 1970.
std::int64_t nanoseconds_of(const timespec& time);

/// Sets the modification time of an existing file with nanosecond resolution; the system's own has that of its ticks.
void set_modification_time(const DiskFile& file, std::int64_t nanoseconds) noexcept;
void set_modification_time(const std::filesystem::path& path, std::int64_t nanoseconds) noexcept;

/// The modification time in nanoseconds since 1970; std::nullopt if the file does not exist.
std::optional<std::int64_t> modification_time(const std::filesystem::path& path);

/// The number of bytes that an unprivileged user may still write to the disk of `path`. Throws DiskError.
std::uint64_t available_bytes(const std::filesystem::path& path);

/// The disk space of a file of `bytes` bytes: whole blocks of 4 KiB.
std::uint64_t disk_bytes(std::uint64_t bytes);

/// Modes of flock(2) on files of a local disk. A lock belongs to the open file: two opens of one file exclude each
/// other, in one process or in two, and the kernel releases it when the file is closed or the process is killed.
enum class LockMode { shared, exclusive };

/// False if another open of the file has a lock that is incompatible with `mode`. A lock that `file` already has is
/// converted. Throws DiskError if the file system does not support locks.
bool try_lock(const DiskFile& file, LockMode mode);

/// Waits for the lock. False if the deadline passes or a stop is requested before.
bool lock_within(const DiskFile& file, LockMode mode, const Deadline& deadline, const std::stop_token& stop = {});

void unlock(const DiskFile& file) noexcept;

/// Returns 0, or the error code of the write.
using WriteBlock = std::function<int(const DiskFile& to, std::uint64_t offset, std::span<const std::byte> bytes)>;

struct DownloadOptions {
  std::uint64_t block_bytes = std::uint64_t{4} << 20;      ///< size of one read and of the buffer; at least 1
  WriteBlock write = {};                                   ///< replaces DiskFile::write in tests
  std::function<void(std::uint64_t bytes)> progress = {};  ///< called after every block with its length
};

/// Copies all of `from` to the beginning of `to`, block by block, and returns its hash; std::nullopt after a stop
/// request, which is checked before each block. Throws DiskError, and what File::read_at throws.
std::optional<ContentHash> download(const File& from, const DiskFile& to, const DownloadOptions& options,
                                    const std::stop_token& stop);

}  // namespace libtrain::data::detail
