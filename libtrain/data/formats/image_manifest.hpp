#pragma once

#include <string>

#include <libtrain/data/formats/image_folder.hpp>
#include <libtrain/data/formats/image_list.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

/// How much of a manifest is compared with the storage before it is used.
enum class Recheck {
  none,  ///< its own checksum, that it belongs to this folder, and the names of the classes, by a single look where the
         ///< storage has one
  sample,  ///< and up to 8 classes, spread evenly over all with the first and the last, are listed: paths and sizes
  full,    ///< all is listed
};

struct ImageManifestOptions {
  ImageFolderOptions folder = {};
  Recheck recheck = Recheck::none;
};

/// list_image_folder(), remembered in a file of the local folder `cache_folder`, so that millions of files are listed
/// once. Where the manifest is damaged, or differs from the storage as far as options.recheck looks, the folder is
/// listed again and the manifest replaced, with a warning. It is complete or absent; any number of processes may use
/// the cache folder. Where it cannot be written there is a warning only.
///
/// A manifest belongs to the storage's identity(), the folder in it and the options: with
/// Recheck::none a set whose images change in their place needs a new cache folder. Throws as list_image_folder.
ImageList list_image_folder_once(const Storage& storage, const std::string& folder, const std::string& cache_folder,
                                 const ImageManifestOptions& options = {});

/// The file in `cache_folder` that keeps this manifest.
std::string image_manifest_path(const Storage& storage, const std::string& folder, const std::string& cache_folder,
                                const ImageFolderOptions& options = {});

}  // namespace libtrain::data
