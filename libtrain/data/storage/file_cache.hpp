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
  /// On a local disk; created if it does not exist; the same for all processes of a node.
  std::filesystem::path directory = {};
  std::uint64_t limit_bytes = std::numeric_limits<std::uint64_t>::max();  ///< of disk space
  std::uint64_t free_space_reserve_bytes = std::uint64_t{1} << 30;        ///< stays free on the disk
  std::uint64_t block_bytes = std::uint64_t{4} << 20;                     ///< size of one read from a remote file
  /// Time for which open() waits until another thread or process has fetched the file, before it reads remotely.
  std::chrono::milliseconds fetch_timeout = std::chrono::minutes{10};
  detail::WriteBlock write = {};  ///< for tests
};

/// Statistics of the FileCache of this process. Each open() that does not throw is a hit, a miss or a bypass.
struct FileCacheStatistics {
  std::uint64_t hits = 0;           ///< a copy existed
  std::uint64_t misses = 0;         ///< the copy was fetched by this or another thread or process
  std::uint64_t bypasses = 0;       ///< the remote file was opened, because no copy could be made
  std::uint64_t fetched_files = 0;  ///< downloaded by this process, in open() and fetch()
  std::uint64_t fetched_bytes = 0;
  std::uint64_t evictions = 0;  ///< entries that this process removed to free space
  std::uint64_t evicted_bytes = 0;
  std::uint64_t damaged = 0;   ///< entries removed because their content had changed
  double seconds_waiting = 0;  ///< duration of open() without a hit, summed over threads
};

enum class FetchOutcome {
  hit,       ///< the copy existed
  fetched,   ///< this call made the copy
  busy,      ///< another thread or process fetches the file
  no_space,  ///< nothing may be evicted now; release() may change that
  refused,   ///< the file is larger than the whole cache, or the disk failed
  stopped,   ///< a stop was requested
};

/// Copies of remote files in a directory on the local disk, shared by the processes of a node: the second epoch and the
/// second run read the copies that the first one fetched. Only the remote storage provides the current versions and
/// therefore the keys, so a run needs it even if all files are cached. Each file is downloaded once per node; a copy is
/// complete or absent, and its hash is checked when a process first opens it. See detail::CacheDirectory for the files.
///
/// Eviction: the least recently used entry goes first. During an epoch, which expect() begins, files that the epoch
/// still needs are not evicted: only entries that no process of the node has used or expected since the previous epoch,
/// and those that this process has released. A file without space is read remotely. Because an epoch reads each file
/// once, no other policy has more hits (J. Mohan et al., "Analyzing and mitigating data stalls in DNN training", VLDB
/// 2021).
///
/// Disk errors never reach the caller: if there is no space, or the disk is full or broken, files are read remotely,
/// and the cache logs one warning. Create it after forking. Any thread may call it, several at once.
class FileCache {
 public:
  /// Throws UsageError for options without a directory or with block_bytes 0, EnvironmentError if the directory cannot
  /// be created or has no file locks (a full disk is not an error).
  explicit FileCache(FileCacheOptions options);
  FileCache(const FileCache&) = delete;  // threads wait on this very object
  FileCache& operator=(const FileCache&) = delete;

  /// The local copy of the version of `path` that `key` identifies, which is fetched if it does not exist; or that
  /// remote file if no copy can be made. A copy is not evicted while the result exists.
  /// Throws EnvironmentError if the remote file is missing, has changed since the key was made, or cannot be read. If
  /// another thread was fetching the file and its storage was unavailable, throws that error without another attempt.
  std::unique_ptr<const File> open(const Storage& from, const std::string& path, const CacheKey& key);

  /// Fetches the copy ahead of its use, without waiting for other downloads. Throws as open() does.
  FetchOutcome fetch(const Storage& from, const std::string& path, const CacheKey& key, const std::stop_token& stop);

  /// Announces that this process will read the files, each as often as it is listed, in the epoch that begins now or
  /// continues.
  void expect(std::span<const CacheKey> keys);

  /// Ends one expected read of a file, whether it took place or not. The epoch ends with the last one.
  void release(const CacheKey& key);

  /// Whether a copy exists now.
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

  /// One thread fetches a file, and other threads of this process wait for it.
  struct Fetch {
    bool has_ended = false;
    std::string unavailable = {};  // message of the StorageUnavailable that ended it; empty otherwise
  };

  std::unique_ptr<const File> open_local(const Storage& from, const std::string& path, const CacheKey& key);
  bool is_valid(const detail::DiskFile& entry, const CacheKey& key, const std::string& name);
  FetchOutcome make_local(const Request& request);
  FetchOutcome claim_and_download(const Request& request);
  bool make_room(detail::CacheAccount& account, std::uint64_t bytes);
  bool must_list(std::uint64_t bytes);
  void list_victims(std::vector<detail::StoredEntry> entries);
  std::vector<detail::StoredEntry> take_victims(std::uint64_t bytes);
  void count(std::uint64_t FileCacheStatistics::* number, std::uint64_t more = 1);
  void warn_once(const std::string& reason);

  const FileCacheOptions options_;
  std::unique_ptr<detail::CacheDirectory> directory_;  // null if the disk was full when the cache was created

  mutable std::mutex mutex_;  // for the following members; no other lock is taken while it is held
  FileCacheStatistics statistics_;
  bool has_warned_ = false;
  std::condition_variable_any fetched_;
  std::unordered_map<ContentHash, std::shared_ptr<Fetch>> fetching_;
  std::unordered_set<ContentHash> verified_;  // entries that this process has fetched or checked

  std::unordered_map<ContentHash, std::uint32_t> expected_;  // reads of each file; empty between epochs
  std::int64_t epoch_began_ = 0;                             // nanoseconds since 1970; 0 before the first epoch
  std::int64_t keep_since_ = 0;                              // entries used later are kept in this epoch
  std::deque<detail::StoredEntry> victims_;                  // entries that may be evicted, in that order
  bool has_listed_ = false;                                  // in this epoch
};

namespace detail {

/// The local copy of a file. The entry stays in the cache while this exists.
class CachedFile final : public File {
 public:
  /// `name` and `size` are those of the remote file; `entry` is the result of CacheDirectory::open_entry().
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
