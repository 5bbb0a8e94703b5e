#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <libtrain/data/formats/parquet_rows.hpp>

namespace libtrain::data::detail {

/// The row groups that were used last, in memory; the least recently used one goes first. Any thread may call it,
/// several at once.
///
/// A row group is absent, being read by one thread, or held. Whoever asks for one that is being read waits; where that
/// reading fails, one of those who wait reads it itself. At most `capacity` are held or being read, but for what more
/// threads than that read at the same time.
class RowGroupCache {
 public:
  /// Throws UsageError for a capacity of 0.
  explicit RowGroupCache(std::size_t capacity);

  RowGroupCache(const RowGroupCache&) = delete;  // threads wait on it
  RowGroupCache& operator=(const RowGroupCache&) = delete;

  /// Row group number `group`, which `read` reads where it is not held. Waits no longer than the readings of other
  /// threads take, which the storage bounds. Throws what `read` throws.
  std::shared_ptr<const ParquetRows> get(std::size_t group, const std::function<ParquetRows()>& read);

 private:
  struct Entry {
    bool done = false;
    std::shared_ptr<const ParquetRows> rows = {};  // none where reading has failed
    std::uint64_t last_use = 0;
  };

  std::shared_ptr<const ParquetRows> find_or_claim(std::size_t group);
  void finish(std::size_t group, std::shared_ptr<const ParquetRows> rows);
  void trim();

  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::unordered_map<std::size_t, std::shared_ptr<Entry>> entries_;
  std::uint64_t uses_ = 0;
};

}  // namespace libtrain::data::detail
