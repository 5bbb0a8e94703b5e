#include <libtrain/data/sources/parquet_images.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/sources/source_checks.hpp>

namespace libtrain::data::detail {

RowGroupCache::RowGroupCache(std::size_t capacity) : capacity_(capacity) {
  if (capacity == 0) throw UsageError("row_groups_in_memory is 0; it must be at least 1.");
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

// Returns nullptr if the caller must read the row group.
std::shared_ptr<const ParquetRows> RowGroupCache::find_or_claim(std::size_t group) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto found = entries_.find(group);
    if (found == entries_.end()) break;
    // A shared_ptr, because the cache may remove the entry during the wait.
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

namespace libtrain::data {

namespace {

// Positions in read_row_group().
constexpr std::size_t kImageColumn = 0;
constexpr std::size_t kLabelColumn = 1;

void require_type(const ParquetFile& file, const std::string& name, ParquetType type, std::string_view content) {
  const auto& column = file.columns()[file.column(name)];
  if (column.type == type && !column.list) return;
  throw EnvironmentError(text("Parquet file '", file.name(), "': expected ", content, " in the column '", name,
                              "', found the type ", column.file_type, ". Name the column to read."));
}

std::vector<ParquetFile> open_files(const Storage& storage, const ParquetImagesOptions& options) {
  const auto folder = detail::list_shards(storage, options.folder, options.prefix, detail::ShardKind::parquet);
  auto files = detail::open_concurrently(folder.shards, [&](const FileInfo& info) {
    ParquetFile file(detail::open_counted(storage, info.path));
    require_type(file, options.image_column, ParquetType::bytes, "bytes");
    require_type(file, options.label_column, ParquetType::integer, "integers");
    return file;
  });
  // Some programs write one file per partition, and some of these are empty: an incomplete copy has no valid metadata.
  const auto has_rows = [](const ParquetFile& file) { return file.rows() > 0; };
  if (std::none_of(files.begin(), files.end(), has_rows)) detail::require_samples(0, files.front().name());
  return files;
}

}  // namespace

ParquetImages::ParquetImages(std::shared_ptr<const Storage> storage, const ParquetImagesOptions& options)
    : storage_(detail::require_storage(std::move(storage))),
      options_(options),
      cache_(options_.row_groups_in_memory),
      files_(open_files(*storage_, options_)),
      table_(table_of_row_groups()) {}

detail::ShardTable ParquetImages::table_of_row_groups() {
  std::vector<std::uint64_t> sizes;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    for (std::size_t number = 0; number < files_[file].row_groups(); ++number) {
      row_groups_.push_back({.file = file, .number = number});
      sizes.push_back(files_[file].rows(number));
    }
  }
  return {detail::describe(*storage_, options_.folder), sizes};
}

void ParquetImages::read(std::uint64_t index, EncodedImage& image) const {
  const auto place = table_.place(index);
  const RowGroup& row_group = row_groups_[place.shard];
  const ParquetFile& file = files_[row_group.file];
  const auto rows = cache_.get(place.shard, [&] {
    return file.read_row_group(row_group.number, {options_.image_column, options_.label_column});
  });
  const std::int64_t label = rows->integer(place.position, kLabelColumn);
  if (label < 0) {
    throw EnvironmentError(text("Parquet file '", file.name(), "', row group ", row_group.number, ", column '",
                                options_.label_column, "', row ", place.position,
                                " of the group: expected a label of 0 or more, found ", label, "."));
  }
  image.bytes = rows->bytes(place.position, kImageColumn);
  image.label = label;
}

SampleOrigin ParquetImages::origin(std::uint64_t index) const {
  const auto place = table_.place(index);
  const RowGroup& row_group = row_groups_[place.shard];
  const ParquetFile& file = files_[row_group.file];
  return {.path = text(file.name(), ", row group ", row_group.number, ", row ", place.position), .bytes = file.bytes()};
}

}  // namespace libtrain::data
