#pragma once

#include <cstdint>

#include <libtrain/data/storage/cache_directory.hpp>
#include <libtrain/data/storage/cache_entry.hpp>
#include <libtrain/data/storage/cache_space.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::data::detail {

/// An entry that the caller has claimed and fetches. Unless it is committed, the destructor removes what is there of it
/// and gives its space back.
class PendingEntry {
 public:
  /// `claim` is what CacheDirectory::claim() returned for `key`; what a downloader that was killed left in it goes.
  PendingEntry(const CacheDirectory& directory, CacheSpace& space, const CacheKey& key, DiskFile claim);
  PendingEntry(const PendingEntry&) = delete;  // one claim
  PendingEntry& operator=(const PendingEntry&) = delete;
  ~PendingEntry();

  /// See CacheSpace::book().
  bool book(const NextUse& next_use, std::uint64_t needed_at);

  /// Where the content belongs: from offset 0 on.
  const DiskFile& file() const { return claim_; }

  /// Makes the content, which must be there, an entry. 0, or the error code of the disk.
  int commit(const ContentHash& content, bool sync);

 private:
  const CacheDirectory& directory_;
  CacheSpace& space_;
  const CacheKey key_;
  DiskFile claim_;
  bool is_committed_ = false;
};

}  // namespace libtrain::data::detail
