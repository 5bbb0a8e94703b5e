#pragma once

#include <cstdint>
#include <vector>

#include <libtrain/data/storage/next_use.hpp>

namespace libtrain::data {

/// What will be read, in order, through a cache of limited size.
struct PrefetchTask {
  std::vector<std::uint32_t> uses = {};        ///< the number of the file that each position reads
  std::vector<std::uint64_t> file_bytes = {};  ///< what each file takes of the cache
  std::uint64_t capacity_bytes = 0;            ///< of the cache
  std::vector<std::uint32_t> local = {};       ///< files that are in the cache at the beginning
};

/// One file to fetch ahead of its use.
struct PlannedFetch {
  std::uint32_t file = 0;
  std::uint64_t needed_at = 0;  ///< the first position that reads it
  std::uint64_t start_at = 0;   ///< the cache has room for it as soon as all positions below this one are done

  bool operator==(const PlannedFetch&) const = default;
};

/// Which files to fetch when, so that every one is local when it is read and as few as possible are fetched.
///
/// Room is made by evicting the file whose next use is furthest, which for files of equal size gives the fewest fetches
/// that are possible (L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", 1966). The
/// choice is made as if each file were fetched at the moment of its use; start_at tells how much earlier the fetch may
/// begin, with the very files evicted that were chosen: after the last use that these have before. Who fetches in this
/// order, from start_at on, and evicts the file with the furthest next use, follows the plan (P. Cao, E. Felten,
/// A. Karlin, K. Li, "A study of integrated prefetching and caching strategies", 1995: never evict for a file what is
/// needed before it).
///
/// A file that is larger than the cache is never fetched. Pure; immutable once made.
class PrefetchPlan {
 public:
  /// Throws UsageError for a use or a local file that has no entry in file_bytes.
  explicit PrefetchPlan(const PrefetchTask& task);

  /// In order of needed_at; start_at never decreases.
  const std::vector<PlannedFetch>& fetches() const { return fetches_; }

  /// The first position that reads the file, or kNeverUsed.
  std::uint64_t first_use(std::uint32_t file) const { return first_uses_[file]; }

  /// The next position after `position` that reads the same file, or kNeverUsed.
  std::uint64_t next_use(std::uint64_t position) const { return next_uses_[position]; }

 private:
  std::vector<std::uint64_t> first_uses_;
  std::vector<std::uint64_t> next_uses_;
  std::vector<PlannedFetch> fetches_;
};

}  // namespace libtrain::data
