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

/// The disk space of the entry of a file of `size` bytes: its content and a trailer, in whole blocks.
std::uint64_t entry_bytes(std::uint64_t size);

/// Describes a wrong length of an entry; empty if the length is right.
std::string find_wrong_length(const DiskFile& entry, const CacheKey& key);

/// Reads an entry and describes its damage; empty if there is none.
std::string find_damage(const DiskFile& entry, const CacheKey& key);

/// An entry of the cache on disk.
struct StoredEntry {
  ContentHash key = {};
  std::uint64_t bytes = 0;     ///< disk space
  std::int64_t last_used = 0;  ///< nanoseconds since 1970
};

/// The files of a cache, which are all its state, shared by the processes of a node.
///
///   entries/<key>    a complete copy and its trailer. Its modification time is its last use.
///   fetching/<key>   an incomplete copy.
///   account          the disk space of all entries and claims in bytes.
///
/// States of a file: remote (in neither folder), fetching (a file in fetching/ that the downloader holds with an
/// exclusive lock: a claim), local (in entries/). Invariants:
/// - A rename moves a copy from fetching/ to entries/, so that an entry is complete or absent.
/// - The kernel releases the lock of a killed downloader. The next process that locks a file that is still in fetching/
///   is the next downloader, and ignores the content of the file. This needs neither the id nor the start time of the
///   process, and works across the PID namespaces of containers.
/// - A process that has an entry open holds a shared lock on it; an entry is evicted under an exclusive lock. So an
///   entry in use is not evicted.
/// - Bytes are added to the account before the space is allocated and subtracted after it is freed, so that a killed
///   process leaves the account too high, never too low. Listing the entries recounts it.
/// Only files in this directory are locked, never remote ones.
class CacheDirectory {
 public:
  /// Creates the directory, which must be on a local disk, and removes the files of killed downloaders. The entries may
  /// take `limit_bytes` at most and must leave `reserve_bytes` free on the disk. Throws DiskError.
  CacheDirectory(const std::filesystem::path& root, std::uint64_t limit_bytes, std::uint64_t reserve_bytes);

  std::filesystem::path entry_path(const ContentHash& key) const { return root_ / "entries" / to_string(key); }
  std::filesystem::path fetching_path(const ContentHash& key) const { return root_ / "fetching" / to_string(key); }

  bool has(const ContentHash& key) const;

  /// The entry, in use while the result is open; not open if there is no entry. Its content is not checked.
  DiskFile open_entry(const ContentHash& key) const;

  /// Marks the entry, if it exists, as used now, for the order of eviction.
  void touch(const ContentHash& key) const;

  /// Removes a damaged open entry, unless another entry has replaced it.
  void discard(const DiskFile& entry, const CacheKey& key) const;

  /// Makes the caller the only downloader of the entry: returns an open, locked file in fetching/. The result is not
  /// open if the deadline passes or a stop is requested while another downloader holds the lock. Throws DiskError.
  DiskFile claim(const ContentHash& key, const Deadline& deadline, const std::stop_token& stop) const;

 private:
  friend class CacheAccount;

  std::filesystem::path root_;
  std::uint64_t limit_;
  std::uint64_t reserve_;
  DiskFile account_;
  mutable std::mutex mutex_;  // for the account: its file lock belongs to the process and does not exclude threads
};

/// The account of a cache, locked against other threads and processes while this exists.
class CacheAccount {
 public:
  /// Throws DiskError, as all of the following.
  explicit CacheAccount(const CacheDirectory& directory);
  CacheAccount(const CacheAccount&) = delete;  // owns a lock
  CacheAccount& operator=(const CacheAccount&) = delete;
  ~CacheAccount();

  /// The disk space that all entries together may take, given the free space of the disk now.
  std::uint64_t capacity() const;

  /// The number of bytes to evict before `bytes` more bytes respect the limit and the reserve.
  std::uint64_t missing(std::uint64_t bytes) const;

  void add(std::uint64_t bytes) { write(used_ + bytes); }
  void subtract(std::uint64_t bytes);

  /// Lists the entries, and sets the account to the disk space that is in use.
  std::vector<StoredEntry> recount_entries();

  /// Removes an entry unless it is in use or was used since it was listed. Returns whether it was removed.
  bool evict(const StoredEntry& entry);

 private:
  void write(std::uint64_t used);

  const CacheDirectory& directory_;
  const std::lock_guard<std::mutex> guard_;
  std::uint64_t used_ = 0;
};

/// An entry that the caller has claimed and downloads. Unless it is committed, the destructor removes the file and
/// frees its space.
class CacheClaim {
 public:
  /// `claim` is the result of CacheDirectory::claim() for `key`; the content left by a killed downloader is removed.
  CacheClaim(const CacheDirectory& directory, const CacheKey& key, DiskFile claim);
  CacheClaim(const CacheClaim&) = delete;  // owns the claim
  CacheClaim& operator=(const CacheClaim&) = delete;
  ~CacheClaim();

  /// Adds the space to the account, sets the length of the file and allocates its blocks, so that no other process
  /// counts the space as free. If it throws DiskError, the account is unchanged once the claim is
  /// destroyed.
  void book(CacheAccount& account) const;

  /// The file for the content, from offset 0 on.
  const DiskFile& file() const { return file_; }

  /// Turns the complete content, whose hash is `content`, into an entry. Throws DiskError.
  void commit(const ContentHash& content);

 private:
  const CacheDirectory& directory_;
  const CacheKey key_;
  const DiskFile file_;
  bool is_committed_ = false;
};

}  // namespace libtrain::data::detail
