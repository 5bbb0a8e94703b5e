#pragma once

#include <memory>
#include <string>

#include <libtrain/data/sources/folder_images.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/sources/parquet_images.hpp>
#include <libtrain/data/sources/tf_record_images.hpp>
#include <libtrain/data/sources/web_dataset_images.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

struct OpenImageSourceOptions {
  std::string folder = {};  ///< below the storage's root, "" for the root itself
  std::string prefix = {};  ///< only shards whose names begin with it are read, such as those of one split

  /// A local folder for the list of images or the indices of shards, so that images are located only once.
  std::string index_folder = {};

  /// For the format that is found; the three options above override the corresponding ones.
  FolderImagesOptions folder_images = {};
  TfRecordImagesOptions tf_record_images = {};
  WebDatasetImagesOptions web_dataset_images = {};
  ParquetImagesOptions parquet_images = {};
};

/// The images in a folder of any format: Parquet files, tar archives or TFRecord files directly in it, which are
/// recognised by their names; otherwise image files in folders named after their classes.
///
/// Lists the folder to determine the format, unless `index_folder` already has the list of its images. Throws
/// EnvironmentError that describes the content for a mixture of formats, for shards of several splits or of an
/// incomplete set, and for a folder of no format; what the source of the format throws; and UsageError without a
/// storage.
std::unique_ptr<const ImageSource> open_image_source(std::shared_ptr<const Storage> storage,
                                                     const OpenImageSourceOptions& options = {});

}  // namespace libtrain::data
