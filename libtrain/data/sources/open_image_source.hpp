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
  std::string prefix = {};  ///< shards whose names begin otherwise are left out, such as those of another split

  /// A local folder that keeps the list of images, or where they lie in their shards, so that this is found out once.
  std::string index_folder = {};

  /// For the format that is found; the three above take the place of what these say about them.
  FolderImagesOptions folder_images = {};
  TfRecordImagesOptions tf_record_images = {};
  WebDatasetImagesOptions web_dataset_images = {};
  ParquetImagesOptions parquet_images = {};
};

/// The images in a folder, whatever they are stored in: Parquet files, tar archives or TFRecord files, where such lie
/// right in it, told by their names; image files in folders named after their classes otherwise.
///
/// Lists the folder to see what it holds; not where `index_folder` has the list of its images already, which is used
/// then. Throws EnvironmentError that says what was found for a mixture of formats, and for a folder that holds none;
/// what the source of the format throws; and UsageError without a storage.
std::unique_ptr<const ImageSource> open_image_source(std::shared_ptr<const Storage> storage,
                                                     const OpenImageSourceOptions& options = {});

}  // namespace libtrain::data
