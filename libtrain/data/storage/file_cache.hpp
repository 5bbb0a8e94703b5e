#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/storage/cache_directory.hpp>
#include <libtrain/data/storage/cache_entry.hpp>
#include <libtrain/data/storage/cache_space.hpp>
#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/next_use.hpp>
#include <libtrain/data/storage/single_flight.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

struct FileCacheOptions {
  /// On a local disk; made where missing; the same for all processes of a node.
  std::filesystem::path directory = {};
  std::uint64_t limit_bytes = std::numeric_limits<std::uint64_t>::max();  ///< of disk space
  std::uint64_t free_space_reserve_bytes = std::uint64_t{1} << 30;        ///< that the disk keeps free
  std::uint64_t block_bytes = std::uint64_t{4} << 20;                     ///< read from a remote file at once
  /// How long an open waits for another thread or process to fetch the file, before it reads remotely.
  std::chrono::milliseconds fetch_timeout = std::chrono::minutes{10};
  bool sync_to_disk = false;  ///< not needed for safety: an entry cut short by a power failure is noticed
  detail::WriteBlock write = detail::write_block;  ///< for tests
};

/// Numbers of this process's FileCache. Each open() is a hit, a miss or a bypass, unless it threw.
struct FileCacheStatistics {
  std::uint64_t hits = 0;           ///< the copy was there
  std::uint64_t misses = 0;         ///< it is there now: fetched, or waited for while another thread or process did
  std::uint64_t bypasses = 0;       ///< the remote file was opened, because no copy could be made
  std::uint64_t fetched_files = 0;  ///< downloaded by this process, in open() and fetch()
  std::uint64_t fetched_bytes = 0;
  std::uint64_t evictions = 0;  ///< entries removed by this process to make room
  std::uint64_t evicted_bytes = 0;
  std::uint64_t damaged = 0;   ///< entries thrown away because their content had changed
  double seconds_waiting = 0;  ///< that open() took where the copy was not there, summed over threads
};

enum class FetchOutcome {
  local,    ///< the copy was there
  fetched,  ///< it is there now
  busy,     ///< another thread or process fetches it
  no_room,  ///< nothing that could be evicted makes enough room, or the disk refuses
  stopped,  ///< a stop was requested
};

/// Copies of remote files in a directory on the local disk, shared by the processes of a node: the second epoch, and
/// the second run, read what the first one fetched. Which versions there are, and hence the keys, only the remote
/// storage tells: a run cannot do without it, though all files were here. One download per file, whoever asks; a copy
/// is complete or absent, and its hash is checked when a process first opens it. See detail::CacheDirectory for the
/// files.
///
/// A cache never fails because of the disk: where there is no room, and where the disk is full or broken, files are
/// read remotely, and one warning says so. Make it after forking. Any thread may call it, several at once.
class FileCache {
 public:
  /// Throws UsageError for options without a directory or with block_bytes 0, EnvironmentError where the directory
  /// cannot be made or has no file locks (a disk that is full is no error).
  explicit FileCache(FileCacheOptions options);
  FileCache(const FileCache&) = delete;  // threads wait on this very object
  FileCache& operator=(const FileCache&) = delete;
  ~FileCache();

  /// The local copy of the version of `path` that `key` names, which is fetched where there is none; or that remote
  /// file where no copy can be made. A copy stays as long as the result lives.
  /// Throws EnvironmentError where the remote file is missing, was changed since the key was made, or cannot be read.
  std::unique_ptr<const File> open(const Storage& from, const std::string& path, const CacheKey& key);

  /// Fetches the copy ahead of its use, without waiting for others and without evicting what expect() said is used
  /// before the position `needed_at`. Throws as open() does.
  FetchOutcome fetch(const Storage& from, const std::string& path, const CacheKey& key, std::uint64_t needed_at,
                     const std::stop_token& stop);

  /// Says at which position of the order of reading an entry is used next, kNeverUsed for not again. Entries of which
  /// nothing was said count as never used and go first, the least recently used one before the others.
  void expect(const CacheKey& key, std::uint64_t next_use);

  /// Whether there is a copy now.
  bool contains(const CacheKey& key) const;

  /// Bytes of disk space for copies as the disk is now, those that are there included; see detail::entry_bytes() for
  /// what one takes. Throws EnvironmentError where the disk cannot be asked.
  std::uint64_t capacity_bytes() const;

  FileCacheStatistics statistics() const;

 private:
  struct Request {
    const Storage& from;
    const std::string& path;
    const CacheKey& key;
    std::uint64_t needed_at;
    Deadline deadline;
    std::stop_token stop;
  };

  std::unique_ptr<const File> open_local(const Storage& from, const std::string& path, const CacheKey& key);
  bool is_sound(const detail::DiskFile& entry, const CacheKey& key, const std::string& name);
  FetchOutcome make_local(const Request& request);
  FetchOutcome claim_and_download(const Request& request);
  std::uint64_t next_use(const ContentHash& key) const;
  void warn_once(const std::string& reason);

  const FileCacheOptions options_;
  std::unique_ptr<detail::CacheDirectory> directory_;  // none where the disk was full from the beginning
  std::unique_ptr<detail::CacheSpace> space_;
  detail::SingleFlight flights_;

  mutable std::mutex mutex_;                                  // of the next two; no other is locked while it is held
  std::unordered_set<ContentHash> sound_;                     // entries that this process has fetched or checked
  std::unordered_map<ContentHash, std::uint64_t> next_uses_;  // of entries that are used again

  std::atomic<bool> has_warned_ = false;
  std::atomic<std::uint64_t> hits_ = 0;
  std::atomic<std::uint64_t> misses_ = 0;
  std::atomic<std::uint64_t> bypasses_ = 0;
  std::atomic<std::uint64_t> fetched_files_ = 0;
  std::atomic<std::uint64_t> fetched_bytes_ = 0;
  std::atomic<std::uint64_t> damaged_ = 0;
  std::atomic<double> seconds_waiting_ = 0;
};

}  // namespace libtrain::data
