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

/// The local disk refuses: full, read-only, damaged. Who has the data elsewhere can do without the disk.
class DiskError : public EnvironmentError {
 public:
  DiskError(const std::string& message, int code) : EnvironmentError(message), code_(code) {}

  bool is_full() const noexcept;

 private:
  int code_;
};

/// Throws DiskError: "Cannot `action` '`path`': what the error code means."
[[noreturn]] void throw_disk_error(const std::string& action, const std::filesystem::path& path, int code);

/// Returns where an error code of reading says something about the file that was read: it is missing, or no file, or
/// its name is. For any other, such as a failing disk or mount, no right to read, too many open files, it throws
/// StorageUnavailable: "`subject`: what the code means. What to do about it."
void throw_if_not_of_the_file(const std::string& subject, int code);

/// An open file on a local disk, closed at the end. Offsets and lengths are bytes.
class DiskFile {
 public:
  DiskFile() = default;

  /// As open(2) with these flags, closed on exec. Where that fails, the result is not open and errno says why.
  static DiskFile open(std::filesystem::path path, int flags);

  bool is_open() const { return descriptor_.is_open(); }
  int descriptor() const { return descriptor_.get(); }

  /// Where it was opened, for messages: it may have another name by now.
  const std::filesystem::path& path() const { return path_; }

  /// Throws DiskError.
  std::uint64_t size() const;

  /// Whether the file still has a name.
  bool is_linked() const;

  /// Whether `path` names this very file.
  bool is_at(const std::filesystem::path& path) const;

  /// How many bytes of `to` were filled: fewer where the file ends. Nothing where reading fails; errno says why.
  std::optional<std::size_t> read(std::uint64_t offset, std::span<std::byte> to) const;

  /// Whether one call of the system filled `first` and then `second`. It may fill less where read() would not.
  bool read_at_once(std::uint64_t offset, std::span<std::byte> first, std::span<std::byte> second) const;

  /// 0, or the error code with which writing failed.
  int write(std::uint64_t offset, std::span<const std::byte> bytes) const;
  int write(std::uint64_t offset, std::string_view bytes) const {
    return write(offset, std::as_bytes(std::span{bytes.data(), bytes.size()}));
  }

  /// Throws DiskError.
  void resize(std::uint64_t bytes) const;

  /// Takes the blocks of the first `bytes` bytes from the disk. 0 as well where the file system cannot do that ahead of
  /// writing; otherwise the error code.
  int allocate(std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  libtrain::detail::FileDescriptor descriptor_;
};

/// Opens for reading and writing, and makes the file where there is none; `flags` are added to those of open(2).
/// Throws DiskError.
DiskFile open_to_write(const std::filesystem::path& path, int flags = 0);

/// Writes all of the file system that holds `file` to its disk. 0, or the error code: also that of an earlier write
/// that never reached the disk.
int sync_file_system(const DiskFile& file);

/// Writes the names in a folder to the disk. Throws DiskError.
void sync_folder(const std::filesystem::path& path);

/// The hash of the first `bytes` bytes of a file; nothing where it ends before or cannot be read.
std::optional<ContentHash> hash_of_beginning(const DiskFile& file, std::uint64_t bytes);

/// Makes the folder and those above it. Throws DiskError.
void make_folder(const std::filesystem::path& path);

/// Now, in nanoseconds since 1970.
std::int64_t wall_clock_nanoseconds();

/// A time of the system's, in nanoseconds since 1970.
std::int64_t nanoseconds_of(const timespec& time);

/// Sets the time of modification of a file that is there, to the nanosecond, where the system's own is as coarse as its
/// ticks.
void set_modification_time(const DiskFile& file, std::int64_t nanoseconds) noexcept;
void set_modification_time(const std::filesystem::path& path, std::int64_t nanoseconds) noexcept;

/// The time of modification in nanoseconds since 1970; nothing where there is no such file.
std::optional<std::int64_t> modification_time(const std::filesystem::path& path);

/// Bytes that a user without privileges may still write to the disk of `path`. Throws DiskError.
std::uint64_t available_bytes(const std::filesystem::path& path);

/// What a file of `bytes` bytes takes of a disk: whole blocks of 4 KiB.
std::uint64_t disk_bytes(std::uint64_t bytes);

/// flock(2) on files of a local disk. A lock belongs to the opened file: two opens of one file exclude each other, in
/// one process as in two, and the kernel releases it when the file is closed or the process is killed.
enum class LockMode { shared, exclusive };

/// False where another open of the file has a lock that does not go with `mode`. A lock that `file` has already is
/// given up for the new one. Throws DiskError where the file system has no locks.
bool try_lock(const DiskFile& file, LockMode mode);

/// Waits for the lock. False where the deadline passes or a stop is requested before.
bool lock_within(const DiskFile& file, LockMode mode, const Deadline& deadline, const std::stop_token& stop = {});

void unlock(const DiskFile& file) noexcept;

/// Returns 0, or the error code of the write.
using WriteBlock = std::function<int(const DiskFile& to, std::uint64_t offset, std::span<const std::byte> bytes)>;

struct DownloadOptions {
  std::uint64_t block_bytes = std::uint64_t{4} << 20;      ///< read at once, and held in memory; at least 1
  WriteBlock write = {};                                   ///< instead of DiskFile::write, for tests
  std::function<void(std::uint64_t bytes)> progress = {};  ///< called after every block with its length
};

/// Copies all of `from` to the beginning of `to`, block by block, and returns its hash; nothing where a stop was
/// requested, which is heard between two blocks. Throws DiskError, and what File::read_at throws.
std::optional<ContentHash> download(const File& from, const DiskFile& to, const DownloadOptions& options,
                                    const std::stop_token& stop);

}  // namespace libtrain::data::detail
