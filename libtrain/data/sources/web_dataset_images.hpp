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
  std::string prefix = {};  ///< files whose names begin otherwise are left out, such as those of another split

  /// Of a sample's members: the image is the first of these that it has. Letters in any case, no dot in front.
  std::vector<std::string> image_extensions = {"jpg", "jpeg", "png"};
  std::string label_extension = "cls";  ///< of the member that holds the label as a decimal integer

  std::string index_folder = {};  ///< a local folder that keeps where members lie: see ShardOptions
};

/// Images in tar archives in WebDataset's layout: those right in a folder whose names end in .tar, .tar.gz or .tgz, in
/// the order of their names. White space around a label is allowed. The lines of the file classes.txt in that folder,
/// if there is one, are the names of classes.
///
/// All archives are opened, and their samples found, when it is made; they stay open. A local file takes a descriptor:
/// for thousands of them raise the limit (ulimit -n), without which opening fails with the system's words. Archives in
/// gzip stay in memory, inflated, and count as read when it is made.
class WebDatasetImages final : public ImageSource {
 public:
  /// Throws UsageError without a storage or an extension of images; what Storage::list, Storage::open, TarFile and
  /// WebDatasetShard throw; EnvironmentError that names the folder where it holds no such files, or none with a sample,
  /// and for a classes.txt that holds something else than a name on every line.
  explicit WebDatasetImages(std::shared_ptr<const Storage> storage, const WebDatasetImagesOptions& options = {});

  const std::string& name() const override { return table_.name(); }
  std::uint64_t size() const override { return table_.size(); }

  /// Throws as ImageSource::read; EnvironmentError as well for a sample without an image or without a label that is a
  /// decimal integer of 0 or more, and for a label without a name where there are names.
  void read(std::uint64_t index, EncodedImage& image) const override;

  /// The image; the first member of a sample that has none.
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
