#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/storage/cache_entry.hpp>
#include <libtrain/data/storage/cached_storage.hpp>
#include <libtrain/data/storage/file_cache.hpp>
#include <libtrain/data/storage/prefetch_plan.hpp>

namespace libtrain::data {

/// The order in which the processes of a node, together, will read files: the file of each position from `first` to
/// `last`, the latter excluded. Positions of several epochs may follow each other.
struct ReadingOrder {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::function<std::string(std::uint64_t position)> path_of = {};  ///< called by the constructor of Prefetcher only
};

struct PrefetcherOptions {
  int threads = 4;
  std::uint64_t files_ahead = 64;                      ///< fetched or being fetched, and not yet read
  std::uint64_t bytes_ahead = std::uint64_t{1} << 30;  ///< the same in bytes; the last of these files may exceed it
};

namespace detail {

/// The files of a reading order, numbered in the order of their first use.
struct NumberedFiles {
  std::vector<std::string> paths = {};
  std::vector<std::uint32_t> uses = {};  ///< the file of each position, from the first one on
};

}  // namespace detail

/// What became of the planned fetches that were begun; those that the reader came to first are not begun.
struct PrefetcherStatistics {
  std::uint64_t fetched = 0;
  std::uint64_t local = 0;    ///< there already
  std::uint64_t busy = 0;     ///< being fetched by others
  std::uint64_t no_room = 0;  ///< left to the reader
  std::uint64_t failed = 0;   ///< left to the reader, who will get the error
};

/// Fetches files into a cache ahead of the reader, and tells the cache the next use of each, so that it evicts what is
/// needed last: see PrefetchPlan. Every process of a node may run one over the node's order: they share the work,
/// because none fetches what another one is fetching. Errors in fetching are left to the reader of the file.
class Prefetcher {
 public:
  /// Needs the size of every file, which costs a request for each unless storage.list() was called before. The storage
  /// must outlive the prefetcher. Throws UsageError without path_of, for a `last` before `first` and for options that
  /// are not positive; EnvironmentError as CachedStorage::key_of() and FileCache::capacity_bytes() do.
  Prefetcher(const CachedStorage& storage, const ReadingOrder& order, PrefetcherOptions options = {});
  Prefetcher(const CachedStorage&& storage, const ReadingOrder& order, PrefetcherOptions options = {}) = delete;
  Prefetcher(const Prefetcher&) = delete;  // threads wait on this very object
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Stops between two blocks of a download. What was planned and not fetched stays remote.
  ~Prefetcher();

  /// Says that this process needs no position below `position` any more. Going back is ignored. Any thread may say so.
  void advance(std::uint64_t position);

  /// Waits until all is fetched that may be at this position. False where the deadline passes before.
  bool wait_until_idle(const Deadline& deadline);

  const PrefetchPlan& plan() const { return plan_; }
  PrefetcherStatistics statistics() const;

 private:
  void work();
  std::optional<FetchOutcome> run(const PlannedFetch& fetch) const;
  void count(const std::optional<FetchOutcome>& outcome);
  void expect(std::uint32_t file, std::uint64_t next_use) const;
  void skip_passed();
  bool may_start() const;
  void stop();

  const CachedStorage& storage_;
  const PrefetcherOptions options_;
  const std::uint64_t first_;
  const detail::NumberedFiles files_;
  const std::vector<CacheKey> keys_;               // of each file
  const PrefetchPlan plan_;                        // its positions count from first_
  const std::vector<std::uint64_t> bytes_before_;  // the sum over the planned fetches before each

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::uint64_t done_ = 0;   // positions passed, counted from first_
  std::size_t passed_ = 0;   // planned fetches whose first use is passed
  std::size_t next_ = 0;     // the first planned fetch that nobody has begun
  std::size_t running_ = 0;  // fetches that are under way
  PrefetcherStatistics statistics_;
  std::stop_source stop_;
  std::vector<std::thread> threads_;
};

}  // namespace libtrain::data
