#include <libtrain/data/sources/row_group_cache.hpp>

#include <utility>

#include <libtrain/base/error.hpp>

namespace libtrain::data::detail {

RowGroupCache::RowGroupCache(std::size_t capacity) : capacity_(capacity) {
  if (capacity == 0) throw UsageError("row_groups_in_memory is 0: it must be at least 1.");
}

std::shared_ptr<const ParquetRows> RowGroupCache::get(std::size_t group, const std::function<ParquetRows()>& read) {
  if (auto held = find_or_claim(group)) return held;
  try {
    auto rows = std::make_shared<const ParquetRows>(read());
    finish(group, rows);
    return rows;
  } catch (...) {
    finish(group, nullptr);
    throw;
  }
}

// Nothing where the caller is to read it.
std::shared_ptr<const ParquetRows> RowGroupCache::find_or_claim(std::size_t group) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto found = entries_.find(group);
    if (found == entries_.end()) break;
    // Its own, as the cache may let go of the entry meanwhile.
    const std::shared_ptr<Entry> entry = found->second;
    finished_.wait(lock, [&] { return entry->done; });
    if (entry->rows) {
      entry->last_use = ++uses_;
      return entry->rows;
    }
  }
  auto entry = std::make_shared<Entry>();
  entry->last_use = ++uses_;
  entries_.emplace(group, std::move(entry));
  trim();
  return nullptr;
}

void RowGroupCache::finish(std::size_t group, std::shared_ptr<const ParquetRows> rows) {
  {
    const std::lock_guard lock(mutex_);
    const auto place = entries_.find(group);
    place->second->done = true;
    place->second->rows = std::move(rows);
    if (!place->second->rows) entries_.erase(place);
    trim();
  }
  finished_.notify_all();
}

void RowGroupCache::trim() {
  while (entries_.size() > capacity_) {
    auto oldest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (!entry->second->done) continue;
      if (oldest == entries_.end() || entry->second->last_use < oldest->second->last_use) oldest = entry;
    }
    if (oldest == entries_.end()) return;
    entries_.erase(oldest);
  }
}

}  // namespace libtrain::data::detail
