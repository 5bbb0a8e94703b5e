#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/data/formats/tf_record.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

struct TfRecordImagesOptions {
  std::string folder = {};  ///< below the storage's root, "" for the root itself
  std::string prefix = {};  ///< only files whose names begin with it are read, such as those of one split
  std::string image_key = "image/encoded";
  std::string label_key = "image/class/label";
  std::int64_t label_offset = 0;  ///< added to labels: -1 for the writers of Inception and TPU, whose 0 is background
  std::string index_folder = {};  ///< a local folder for the indices of the files: see ShardOptions
  DataChecksum checksum = DataChecksum::verify;
};

/// Images in the tf.train.Examples of TFRecord files: the files directly in a folder whose names contain ".tfrecord" or
/// end like "-00003-of-00128", in the order of their names. The lines of the file classes.txt in that folder, if it
/// exists, are the names of classes.
///
/// The constructor opens all files and finds their records; the files stay open. Each local file takes a descriptor:
/// for thousands of files raise the limit (ulimit -n). Files that are compressed as a whole are inflated into memory,
/// and count as read by the constructor.
class TfRecordImages final : public ImageSource {
 public:
  /// Throws UsageError without a storage; what Storage::list, Storage::open and TfRecordFile throw; EnvironmentError
  /// that names the folder if it contains no such files or no records, and for a classes.txt with an empty line or
  /// without lines.
  explicit TfRecordImages(std::shared_ptr<const Storage> storage, const TfRecordImagesOptions& options = {});

  const std::string& name() const override { return table_.name(); }
  std::uint64_t size() const override { return table_.size(); }

  /// Throws as ImageSource::read; EnvironmentError as well for a record that is not an example with one image and one
  /// label, and for a label that, after the offset is added, is negative or has no name although there are names.
  void read(std::uint64_t index, EncodedImage& image) const override;

  SampleOrigin origin(std::uint64_t index) const override;
  const std::vector<std::string>& classes() const override { return classes_.names(); }
  std::vector<std::uint64_t> blocks() const override { return table_.blocks(); }

 private:
  std::vector<TfRecordFile> open_shards();

  std::shared_ptr<const Storage> storage_;  // open files may refer to it
  TfRecordImagesOptions options_;
  detail::ClassNames classes_;
  std::vector<TfRecordFile> shards_;
  detail::ShardTable table_;
};

}  // namespace libtrain::data
