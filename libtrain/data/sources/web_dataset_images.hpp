#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/data/formats/web_dataset.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

struct WebDatasetImagesOptions {
  std::string folder = {};  ///< below the storage's root, "" for the root itself
  std::string prefix = {};  ///< only files whose names begin with it are read, such as those of one split

  /// The image is the member of a sample with the first of these extensions that it has. In any case, without a dot.
  std::vector<std::string> image_extensions = {"jpg", "jpeg", "png"};
  std::string label_extension = "cls";  ///< of the member that contains the label as a decimal integer

  std::string index_folder = {};  ///< a local folder for the indices of the archives: see ShardOptions
};

/// Images in tar archives in WebDataset's layout: the archives directly in a folder whose names end in .tar, .tar.gz or
/// .tgz, in the order of their names. White space around a label is allowed. The lines of the file classes.txt in that
/// folder, if it exists, are the names of classes.
///
/// The constructor opens all archives and finds their samples; the archives stay open. Each local file takes a
/// descriptor: for thousands of files raise the limit (ulimit -n). Archives in gzip are inflated into memory, and count
/// as read by the constructor.
class WebDatasetImages final : public ImageSource {
 public:
  /// Throws UsageError without a storage or an extension of images; what Storage::list, Storage::open, TarFile and
  /// WebDatasetShard throw; EnvironmentError that names the folder if it contains no such files or no samples, and for
  /// a classes.txt with an empty line or without lines.
  explicit WebDatasetImages(std::shared_ptr<const Storage> storage, const WebDatasetImagesOptions& options = {});

  const std::string& name() const override { return table_.name(); }
  std::uint64_t size() const override { return table_.size(); }

  /// Throws as ImageSource::read; EnvironmentError as well for a sample without an image or without a label that is a
  /// decimal integer of 0 or more, and for a label without a name if there are names.
  void read(std::uint64_t index, EncodedImage& image) const override;

  /// The place of the image, or of the first member of a sample without an image.
  SampleOrigin origin(std::uint64_t index) const override;

  const std::vector<std::string>& classes() const override { return classes_.names(); }
  std::vector<std::uint64_t> blocks() const override { return table_.blocks(); }

 private:
  std::vector<WebDatasetShard> open_shards();

  std::shared_ptr<const Storage> storage_;  // open files may refer to it
  WebDatasetImagesOptions options_;
  detail::ClassNames classes_;
  std::vector<WebDatasetShard> shards_;
  detail::ShardTable table_;
};

}  // namespace libtrain::data
