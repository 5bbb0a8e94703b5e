#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/read_ahead.hpp>
#include <libtrain/data/storage/cached_storage.hpp>
#include <libtrain/data/storage/file_cache.hpp>

namespace libtrain::data {

struct PrefetcherOptions {
  int threads = 4;
  std::uint64_t files_ahead = 64;                      ///< limit of files that are fetched or in flight, but not read
  std::uint64_t bytes_ahead = std::uint64_t{1} << 30;  ///< the same in bytes; the last of these files may exceed it
};

/// Fetches files into a cache ahead of their reader, in the order in which they will be read, and tells the cache which
/// files are still needed: see FileCache::expect(). If a fetch fails, the reader of the file gets the error.
class Prefetcher final : public ReadAhead {
 public:
  /// Position i of the order is the file paths[i]. Needs the size of every file, which takes a request for each file
  /// unless storage->list() was called before. Throws UsageError without a storage and for options that are not
  /// positive; EnvironmentError as CachedStorage::key_of() does.
  Prefetcher(std::shared_ptr<const CachedStorage> storage, std::vector<std::string> paths,
             PrefetcherOptions options = {});
  Prefetcher(const Prefetcher&) = delete;  // threads wait on this object
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Stops downloads at their next block, and requests that are retried at their next wait.
  ~Prefetcher() override;

  /// Ignores a position before the current one.
  void advance(std::uint64_t position) override;

  /// Waits until all files are fetched that may be fetched at this position. False if the deadline passes before.
  bool wait_until_idle(const Deadline& deadline);

 private:
  enum class State : std::uint8_t {
    open,     // not begun, or there was no space
    ahead,    // fetched or being fetched, but not read
    settled,  // read, or nothing to fetch
  };

  void work();
  FetchOutcome fetch(std::size_t position) const;
  bool may_start() const;
  void settle(std::size_t position);
  void stop();

  const std::shared_ptr<const CachedStorage> storage_;
  const PrefetcherOptions options_;
  const std::vector<std::string> paths_;
  const std::vector<CacheKey> keys_;  // of each path

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::size_t done_ = 0;          // number of positions that were read
  std::size_t next_ = 0;          // the first position that may have to be fetched
  bool waits_for_space_ = false;  // until the reader advances
  std::vector<State> states_;     // of each position
  std::uint64_t files_ahead_ = 0;
  std::uint64_t bytes_ahead_ = 0;
  std::size_t running_ = 0;  // number of fetches in progress
  std::stop_source stop_;
  std::vector<std::thread> threads_;
};

}  // namespace libtrain::data
