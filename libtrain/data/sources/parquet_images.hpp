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

namespace libtrain::data {

struct ParquetImagesOptions {
  std::string folder = {};  ///< below the storage's root, "" for the root itself
  std::string prefix = {};  ///< files whose names begin otherwise are left out, such as those of another split
  std::string image_column = "image.bytes";
  std::string label_column = "label";

  /// How many row groups are kept, both columns of each: at least as many as the order of reading goes back and forth
  /// between, or they are read again and again.
  std::size_t row_groups_in_memory = 16;
};

/// Images in Parquet files, such as those of Hugging Face: the files right in a folder whose names end in .parquet, in
/// the order of their names. An image and its label are a row. Names of classes are not known.
///
/// The unit of reading is the row group: blocks() are the row groups, and the first image that is asked for brings in
/// its whole row group, which is the only read that counts. Threads that ask for the same one wait for one reading.
///
/// All files are opened, and their ends read, when it is made; they stay open. A local file takes a descriptor: for
/// thousands of them raise the limit (ulimit -n), without which opening fails with the system's words.
class ParquetImages final : public ImageSource {
 public:
  /// Throws UsageError without a storage and for 0 row groups in memory; what Storage::list, Storage::open and
  /// ParquetFile throw; EnvironmentError that names the file where a column is missing or of another type, and
  /// the first one where none has a row; and the folder where it holds no such files.
  explicit ParquetImages(std::shared_ptr<const Storage> storage, const ParquetImagesOptions& options = {});

  const std::string& name() const override { return table_.name(); }
  std::uint64_t size() const override { return table_.size(); }

  /// Throws as ImageSource::read, with row group and row in place of the offset; EnvironmentError as well for a row
  /// without an image or a label, and for a negative label.
  void read(std::uint64_t index, EncodedImage& image) const override;

  /// The path has row group and row, which is counted in the row group, behind it, since a row has no offset.
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
