#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <libtrain/data/sources/image_source.hpp>

namespace libtrain::bench {

/// The images that bench_data_loader reads, in several forms below one folder.
struct LoaderData {
  std::string photographs = {};     ///< an image folder
  std::string shards = {};          ///< a folder with the archive `tar`
  std::string restart_shards = {};  ///< the same with restart markers every 4 MCUs
  std::string tar = {};             ///< in WebDataset's layout: a .jpg and a .cls for each image
  std::string tf_record = {};       ///< a tf.train.Example for each image
  std::uint64_t images = 0;
};

/// Takes the image folder `folder`/photographs as it is, and makes of it what is missing of the others. Throws
/// EnvironmentError where there are no such images, one of them takes no restart markers, something cannot be written,
/// or one form has fewer or more images than the others.
LoaderData prepare_loader_data(const std::string& folder);

/// The images in `folder`: a folder of images, or of shards.
std::shared_ptr<const data::ImageSource> open_images(const std::string& folder);

}  // namespace libtrain::bench
