#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/storage/cache_entry.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::data::detail {

/// An entry of the cache as it lies on disk.
struct StoredEntry {
  ContentHash key = {};
  std::uint64_t bytes = 0;     ///< of disk space
  std::int64_t last_used = 0;  ///< nanoseconds since 1970
};

/// The files of a cache: all its state, shared by the processes of a node.
///
///   entries/<key>    a complete copy, its trailer included. Its time of modification is its last use.
///   fetching/<key>   the beginning of a copy.
///   account          see CacheSpace.
///
/// States of a file: remote (in neither folder), fetching (a file in fetching/ whose exclusive lock is held by who
/// downloads it), local (in entries/). Invariants:
/// - A rename takes a copy from fetching/ to entries/, so that it is there complete or not at all.
/// - The kernel releases the lock of a downloader that is killed. Whoever gets the lock of a file that is still in
///   fetching/ is the next downloader, and what the file holds is worth nothing. This needs neither the number nor the
///   start time of the process, and holds across the process namespaces of containers as well.
/// - Who has an entry open holds a shared lock on it; it is evicted under an exclusive one. An entry in use stays.
/// Only files in this directory are locked, never remote ones.
class CacheDirectory {
 public:
  /// Makes the directory, which must be on a local disk. Throws DiskError.
  explicit CacheDirectory(const std::filesystem::path& root);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path entry_path(const ContentHash& key) const;
  std::filesystem::path fetching_path(const ContentHash& key) const;

  bool has(const ContentHash& key) const;

  /// The entry, in use as long as the result is open; not open where there is none. What it holds is not checked.
  DiskFile open_entry(const ContentHash& key) const;

  /// Notes that the entry is used now, for the order of eviction.
  void touch(const DiskFile& entry) const;

  /// Makes the caller the only one who fetches the entry: an open file in fetching/ with the lock. Not open where the
  /// deadline passes or a stop is requested before others let go. Throws DiskError.
  DiskFile claim(const ContentHash& key, const Deadline& deadline, const std::stop_token& stop) const;

  /// Turns the caller's claim, which must be complete, into an entry. Throws DiskError.
  void commit(const ContentHash& key) const;

  /// Removes the entry unless it is in use. Whether it is gone.
  bool evict(const ContentHash& key) const;

  std::vector<StoredEntry> entries() const;
  std::vector<StoredEntry> claims() const;

 private:
  std::filesystem::path root_;
};

}  // namespace libtrain::data::detail
