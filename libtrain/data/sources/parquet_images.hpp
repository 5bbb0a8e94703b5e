#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <libtrain/data/formats/parquet.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// A least recently used cache of row groups. Any thread may call it, several at once.
///
/// A row group is absent, being read by one thread, or held. A thread that requests a row group that is being read
/// waits for it; if that read fails, one of the waiting threads reads it. At most `capacity` row groups are held or
/// being read, or one for each reading thread if there are more threads.
class RowGroupCache {
 public:
  /// Throws UsageError for a capacity of 0.
  explicit RowGroupCache(std::size_t capacity);

  RowGroupCache(const RowGroupCache&) = delete;  // threads wait on it
  RowGroupCache& operator=(const RowGroupCache&) = delete;

  /// Row group number `group`; calls `read` if it is not held. Waits for reads of other threads, whose duration the
  /// storage limits. Throws what `read` throws.
  std::shared_ptr<const ParquetRows> get(std::size_t group, const std::function<ParquetRows()>& read);

 private:
  struct Entry {
    bool done = false;
    std::shared_ptr<const ParquetRows> rows = {};  // null if reading failed
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

namespace libtrain::data {

struct ParquetImagesOptions {
  std::string folder = {};  ///< below the storage's root, "" for the root itself
  std::string prefix = {};  ///< only files whose names begin with it are read, such as those of one split
  std::string image_column = "image.bytes";
  std::string label_column = "label";

  /// The number of row groups to keep, with both columns: at least as many as the reading order alternates between, or
  /// they are read repeatedly.
  std::size_t row_groups_in_memory = 16;
};

/// Images in Parquet files, such as those of Hugging Face: the files directly in a folder whose names end in .parquet,
/// in the order of their names. A row is an image and its label. Names of classes are not known.
///
/// The unit of reading is the row group: blocks() are the row groups, and the first request for an image reads its
/// whole row group, which is the only read that counts. Threads that request the same row group wait for one read.
///
/// The constructor opens all files and reads their metadata; the files stay open. Each local file takes a descriptor:
/// for thousands of files raise the limit (ulimit -n).
class ParquetImages final : public ImageSource {
 public:
  /// Throws UsageError without a storage and for 0 row groups in memory; what Storage::list, Storage::open and
  /// ParquetFile throw; EnvironmentError that names the file if a column is missing or has another type, the first file
  /// if no file has a row, and the folder if it contains no such files.
  explicit ParquetImages(std::shared_ptr<const Storage> storage, const ParquetImagesOptions& options = {});

  const std::string& name() const override { return table_.name(); }
  std::uint64_t size() const override { return table_.size(); }

  /// Throws as ImageSource::read, with row group and row instead of the offset; EnvironmentError as well for a row
  /// without an image or a label, and for a negative label.
  void read(std::uint64_t index, EncodedImage& image) const override;

  /// The row group and the row in it follow the path, because a row has no offset.
  SampleOrigin origin(std::uint64_t index) const override;

  const std::vector<std::string>& classes() const override { return classes_; }
  std::vector<std::uint64_t> blocks() const override { return table_.blocks(); }

 private:
  struct RowGroup {
    std::size_t file = 0;
    std::size_t number = 0;  // in the file
  };

  detail::ShardTable table_of_row_groups();

  std::shared_ptr<const Storage> storage_;  // open files may refer to it
  ParquetImagesOptions options_;
  mutable detail::RowGroupCache cache_;
  std::vector<ParquetFile> files_;
  std::vector<RowGroup> row_groups_;
  detail::ShardTable table_;
  std::vector<std::string> classes_;
};

}  // namespace libtrain::data
