#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/storage/cache_directory.hpp>
#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/file.hpp>
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
  bool sync_to_disk = false;      ///< not needed for safety: an entry cut short by a power failure is noticed
  detail::WriteBlock write = {};  ///< for tests
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
  no_room,  ///< nothing may be evicted; there may be room once release() has been called
  refused,  ///< the file is larger than the whole cache, or the disk refuses
  stopped,  ///< a stop was requested
};

/// Copies of remote files in a directory on the local disk, shared by the processes of a node: the second epoch, and
/// the second run, read what the first one fetched. Which versions there are, and hence the keys, only the remote
/// storage tells: a run cannot do without it, though all files were here. One download per file, whoever asks; a copy
/// is complete or absent, and its hash is checked when a process first opens it. See detail::CacheDirectory for the
/// files.
///
/// What is evicted: the entry that was used longest ago. During an epoch, which expect() begins, nothing that the epoch
/// still needs: only entries that no process of the node has used or expected since the epoch before, and those that
/// this process has released. What has no room then is read remotely. As an epoch reads each file once, no other choice
/// would find more copies (J. Mohan et al., "Analyzing and mitigating data stalls in DNN training", VLDB 2021).
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

  /// The local copy of the version of `path` that `key` names, which is fetched where there is none; or that remote
  /// file where no copy can be made. A copy stays as long as the result lives.
  /// Throws EnvironmentError where the remote file is missing, was changed since the key was made, or cannot be read.
  std::unique_ptr<const File> open(const Storage& from, const std::string& path, const CacheKey& key);

  /// Fetches the copy ahead of its use, without waiting for others. Throws as open() does.
  FetchOutcome fetch(const Storage& from, const std::string& path, const CacheKey& key, const std::stop_token& stop);

  /// Says that this process will read the files, each as often as it is named, in the epoch that begins now or goes on.
  void expect(std::span<const CacheKey> keys);

  /// Says that one reading of an expected file is over, or will not be. The epoch ends with the last one.
  void release(const CacheKey& key);

  /// Whether there is a copy now.
  bool contains(const CacheKey& key) const;

  FileCacheStatistics statistics() const;

 private:
  struct Request {
    const Storage& from;
    const std::string& path;
    const CacheKey& key;
    Deadline deadline;
    std::stop_token stop;
  };

  std::unique_ptr<const File> open_local(const Storage& from, const std::string& path, const CacheKey& key);
  bool is_sound(const detail::DiskFile& entry, const CacheKey& key, const std::string& name);
  FetchOutcome make_local(const Request& request);
  FetchOutcome claim_and_download(const Request& request);
  bool make_room(detail::CacheAccount& account, std::uint64_t bytes);
  bool must_list(std::uint64_t bytes);
  void list_victims(std::vector<detail::StoredEntry> entries);
  std::vector<detail::StoredEntry> take_victims(std::uint64_t bytes);
  void count(std::uint64_t FileCacheStatistics::* number, std::uint64_t more = 1);
  void warn_once(const std::string& reason);

  const FileCacheOptions options_;
  std::unique_ptr<detail::CacheDirectory> directory_;  // none where the disk was full from the beginning

  mutable std::mutex mutex_;  // of what follows; no other is locked while it is held
  FileCacheStatistics statistics_;
  bool has_warned_ = false;
  std::condition_variable_any fetched_;
  std::unordered_set<ContentHash> fetching_;  // by one thread of this process at a time
  std::unordered_set<ContentHash> sound_;     // entries that this process has fetched or checked

  std::unordered_map<ContentHash, std::uint32_t> expected_;  // how often each; empty between epochs
  std::int64_t epoch_began_ = 0;                             // nanoseconds since 1970; 0 before the first epoch
  std::int64_t keep_since_ = 0;                              // what was used later stays in this epoch
  std::deque<detail::StoredEntry> victims_;                  // what may go, in that order
  bool has_listed_ = false;                                  // in this epoch
};

namespace detail {

/// The local copy of a file. The entry stays in the cache as long as this lives.
class CachedFile final : public File {
 public:
  /// `name` is the remote file's, `size` its length; `entry` what CacheDirectory::open_entry() returned.
  CachedFile(std::string name, std::uint64_t size, DiskFile entry)
      : name_(std::move(name)), size_(size), entry_(std::move(entry)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return size_; }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override;

 private:
  const std::string name_;
  const std::uint64_t size_;
  const DiskFile entry_;
};

}  // namespace detail

}  // namespace libtrain::data
