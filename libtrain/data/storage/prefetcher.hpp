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
  std::uint64_t files_ahead = 64;                      ///< fetched or being fetched, and not yet read
  std::uint64_t bytes_ahead = std::uint64_t{1} << 30;  ///< the same in bytes; the last of these files may exceed it
};

/// Fetches files into a cache ahead of their reader, in the order in which that will read them, and lets the cache know
/// what it still needs: see FileCache::expect(). Errors in fetching are left to the reader of the file.
class Prefetcher final : public ReadAhead {
 public:
  /// Position i of the order is the file paths[i]. Needs the size of every file, which costs a request for each unless
  /// storage->list() was called before. Throws UsageError without a storage and for options that are not positive;
  /// EnvironmentError as CachedStorage::key_of() does.
  Prefetcher(std::shared_ptr<const CachedStorage> storage, std::vector<std::string> paths,
             PrefetcherOptions options = {});
  Prefetcher(const Prefetcher&) = delete;  // threads wait on this very object
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Stops between two blocks of a download. What was not fetched stays remote.
  ~Prefetcher() override;

  /// Going back is ignored.
  void advance(std::uint64_t position) override;

  /// Waits until all is fetched that may be at this position. False where the deadline passes before.
  bool wait_until_idle(const Deadline& deadline);

 private:
  enum class State : std::uint8_t {
    open,     // nobody has begun, or there was no room
    ahead,    // fetched or being fetched, and not yet read
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
  std::size_t done_ = 0;         // positions that were read
  std::size_t next_ = 0;         // no position before it is to be fetched
  bool waits_for_room_ = false;  // until the reader has come further
  std::vector<State> states_;    // of each position
  std::uint64_t files_ahead_ = 0;
  std::uint64_t bytes_ahead_ = 0;
  std::size_t running_ = 0;  // fetches that are under way
  std::stop_source stop_;
  std::vector<std::thread> threads_;
};

}  // namespace libtrain::data
