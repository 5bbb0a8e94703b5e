#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// What the entry of a file of `size` bytes takes of the disk: its content, a trailer, whole blocks.
std::uint64_t entry_bytes(std::uint64_t size);

/// What is wrong with the length of an entry; empty where nothing is.
std::string find_wrong_length(const DiskFile& entry, const CacheKey& key);

/// What is wrong with an entry, whose content is read for that; empty where nothing is.
std::string find_damage(const DiskFile& entry, const CacheKey& key);

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
///   account          how many bytes of disk space the entries and the claims take together.
///
/// States of a file: remote (in neither folder), fetching (a file in fetching/ whose exclusive lock is held by who
/// downloads it: a claim), local (in entries/). Invariants:
/// - A rename takes a copy from fetching/ to entries/, so that it is there complete or not at all.
/// - The kernel releases the lock of a downloader that is killed. Whoever gets the lock of a file that is still in
///   fetching/ is the next downloader, and what the file holds is worth nothing. This needs neither the number nor the
///   start time of the process, and holds across the process namespaces of containers as well.
/// - Who has an entry open holds a shared lock on it; it is evicted under an exclusive one. An entry in use stays.
/// - Bytes are added to the account before they are taken and subtracted after they are given back, so that a process
///   that is killed leaves it too high and never too low. It is counted anew whenever the entries are listed.
/// Only files in this directory are locked, never remote ones.
class CacheDirectory {
 public:
  /// Makes the directory, which must be on a local disk, and removes what downloaders that were killed have left. The
  /// entries are to take `limit_bytes` at most and to leave the disk `reserve_bytes`. Throws DiskError.
  CacheDirectory(const std::filesystem::path& root, std::uint64_t limit_bytes, std::uint64_t reserve_bytes);

  std::filesystem::path entry_path(const ContentHash& key) const { return root_ / "entries" / to_string(key); }
  std::filesystem::path fetching_path(const ContentHash& key) const { return root_ / "fetching" / to_string(key); }

  bool has(const ContentHash& key) const;

  /// The entry, in use as long as the result is open; not open where there is none. What it holds is not checked.
  DiskFile open_entry(const ContentHash& key) const;

  /// Notes that the entry, if there is one, is used now or will be soon, for the order of eviction.
  void touch(const ContentHash& key) const;

  /// Removes an open entry that is damaged, unless another one has taken its place.
  void discard(const DiskFile& entry, const CacheKey& key) const;

  /// Makes the caller the only one who fetches the entry: an open file in fetching/ with the lock. Not open where the
  /// deadline passes or a stop is requested before others let go. Throws DiskError.
  DiskFile claim(const ContentHash& key, const Deadline& deadline, const std::stop_token& stop) const;

 private:
  friend class CacheAccount;

  std::filesystem::path root_;
  std::uint64_t limit_;
  std::uint64_t reserve_;
  DiskFile account_;
  mutable std::mutex mutex_;  // of the account: the file lock is the process's, and does not keep its threads apart
};

/// The account of a cache, locked against other threads and processes as long as this lives.
class CacheAccount {
 public:
  /// Throws DiskError, as all of the following.
  explicit CacheAccount(const CacheDirectory& directory);
  CacheAccount(const CacheAccount&) = delete;  // one lock
  CacheAccount& operator=(const CacheAccount&) = delete;
  ~CacheAccount();

  /// What all entries together may take as the disk is now.
  std::uint64_t capacity() const;

  /// How much has to go before `bytes` more keep to both the limit and the reserve.
  std::uint64_t missing(std::uint64_t bytes) const;

  void add(std::uint64_t bytes) { write(used_ + bytes); }
  void subtract(std::uint64_t bytes);

  /// Counts anew, and returns the entries.
  std::vector<StoredEntry> take_stock();

  /// Removes an entry unless it is in use, or was used since it was listed. Whether it is gone.
  bool evict(const StoredEntry& entry);

 private:
  void write(std::uint64_t used);

  const CacheDirectory& directory_;
  const std::lock_guard<std::mutex> guard_;
  std::uint64_t used_ = 0;
};

/// An entry that the caller has claimed and fetches. Unless it is committed, the destructor removes what is there of it
/// and gives its space back.
class CacheClaim {
 public:
  /// `claim` is what CacheDirectory::claim() returned for `key`; what a downloader that was killed left in it goes.
  CacheClaim(const CacheDirectory& directory, const CacheKey& key, DiskFile claim);
  CacheClaim(const CacheClaim&) = delete;  // one claim
  CacheClaim& operator=(const CacheClaim&) = delete;
  ~CacheClaim();

  /// Books the space and gives the file its length. Throws DiskError, with nothing booked.
  void book(CacheAccount& account) const;

  /// Where the content belongs: from offset 0 on.
  const DiskFile& file() const { return file_; }

  /// Makes the content, which must be there, an entry. Throws DiskError.
  void commit(const ContentHash& content, bool sync);

 private:
  const CacheDirectory& directory_;
  const CacheKey key_;
  const DiskFile file_;
  bool is_committed_ = false;
};

}  // namespace libtrain::data::detail
