#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include <libtrain/data/storage/cache_directory.hpp>
#include <libtrain/data/storage/cache_entry.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/next_use.hpp>

namespace libtrain::data::detail {

/// The position in the order of reading at which an entry will be used next, or kNeverUsed.
using NextUse = std::function<std::uint64_t(const ContentHash&)>;

/// The entries that may go, first to last: the one whose next use is furthest (L. A. Belady, "A study of replacement
/// algorithms for a virtual-storage computer", 1966), among those that are as far the one least recently used. What is
/// used before `needed_at` stays: room for an entry that is needed then is not made by removing one needed earlier.
std::vector<StoredEntry> eviction_order(const std::vector<StoredEntry>& entries, const NextUse& next_use,
                                        std::uint64_t needed_at);

/// Keeps a cache within its limit and leaves the disk its reserve, for all processes of a node.
///
/// The file `account` holds how many bytes of disk space the entries and the claims take together, and is changed under
/// its lock. Bytes are added before they are taken and subtracted after they are given back, so that a process that is
/// killed leaves the account too high and never too low. It is counted anew before anything is evicted.
class CacheSpace {
 public:
  /// `directory` must outlive it. Throws DiskError.
  CacheSpace(const CacheDirectory& directory, std::uint64_t limit_bytes, std::uint64_t reserve_bytes);

  /// Books the space for the entry of a file of `size` bytes and gives `claim` its length, after entries were evicted
  /// where that is needed. False, with nothing booked, where not enough may go. Throws DiskError.
  bool book(const DiskFile& claim, std::uint64_t size, const NextUse& next_use, std::uint64_t needed_at);

  /// Takes back what was booked for a claim, whose length becomes 0.
  void give_back(const DiskFile& claim) const noexcept;

  /// Removes a claim and takes back what was booked for it. The claim's lock is held.
  void abandon(const DiskFile& claim, const ContentHash& key) const noexcept;

  /// Removes an open entry that is damaged, unless another one has taken its place.
  void discard(const DiskFile& entry, const CacheKey& key) const;

  /// Removes what downloaders that were killed have left.
  void remove_left_overs() const;

  /// What all entries together may take as the disk is now. Throws DiskError.
  std::uint64_t capacity_bytes() const;

  std::uint64_t evictions() const { return evictions_.load(); }
  std::uint64_t evicted_bytes() const { return evicted_bytes_.load(); }

 private:
  class Account;

  struct Stock {
    std::vector<StoredEntry> entries = {};
    std::uint64_t bytes = 0;  // of entries and claims
  };
  Stock take_stock() const;
  std::uint64_t missing(std::uint64_t used, std::uint64_t bytes) const;
  std::uint64_t make_room(std::uint64_t bytes, const NextUse& next_use, std::uint64_t needed_at);

  const CacheDirectory& directory_;
  const std::uint64_t limit_;
  const std::uint64_t reserve_;
  const DiskFile account_;
  mutable std::mutex mutex_;  // the file lock is the process's: it does not keep its threads apart
  std::atomic<std::uint64_t> evictions_ = 0;
  std::atomic<std::uint64_t> evicted_bytes_ = 0;
};

}  // namespace libtrain::data::detail
