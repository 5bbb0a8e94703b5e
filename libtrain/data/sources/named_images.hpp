#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

/// Images to which another file refers by their names, such as the annotations of COCO: image k is `names[k]`. They are
/// files in `folder`, or members with these names in the tar archives directly in `folder`, as `libtrain-pack --coco`
/// writes them. Labels are 0, and the source has no blocks: images of an archive are read in any order.
///
/// The folder contains archives if its first image is not a file and a listing of the folder has some. Then all of them
/// are opened, and stay open: each local one takes a descriptor. `index_folder` is a local folder for their indices:
/// see ShardOptions.
///
/// Throws UsageError without a storage; EnvironmentError without names, for an image that is in no archive, a member
/// that is in two, and while libtrain-pack replaces the archives; what Storage::list, Storage::info and TarFile throw.
/// A file that is missing is an error when it is read.
std::unique_ptr<const ImageSource> open_named_images(std::shared_ptr<const Storage> storage, const std::string& folder,
                                                     const std::vector<std::string>& names,
                                                     const std::string& index_folder = {});

}  // namespace libtrain::data
