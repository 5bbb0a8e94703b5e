#include <libtrain/data/storage/pending_entry.hpp>

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace libtrain::data::detail {

PendingEntry::PendingEntry(const CacheDirectory& directory, CacheSpace& space, const CacheKey& key, DiskFile claim)
    : directory_(directory), space_(space), key_(key), claim_(std::move(claim)) {
  if (claim_.size() > 0) space_.give_back(claim_);
}

PendingEntry::~PendingEntry() {
  if (is_committed_) return;
  // Removed while its lock is held: who waits for the lock finds the name gone and makes a claim of its own.
  space_.abandon(claim_, key_.hash);
}

bool PendingEntry::book(const NextUse& next_use, std::uint64_t needed_at) {
  return space_.book(claim_, key_.size, next_use, needed_at);
}

int PendingEntry::commit(const ContentHash& content, bool sync) {
  if (const int error = write_trailer(claim_, key_, content); error != 0) return error;
  if (sync && fdatasync(claim_.descriptor()) != 0) return errno;
  directory_.touch(claim_);
  directory_.commit(key_.hash);
  is_committed_ = true;
  return 0;
}

}  // namespace libtrain::data::detail
