#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <libtrain/data/formats/image_folder.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::pack {

/// The path of the annotations of a split such as "train2017", below the root of a data set in COCO's layout:
/// annotations/instances_train2017.json. The images are in the folder train2017.
std::string coco_annotations_path(const std::string& split);

/// A split of a data set in COCO's layout.
struct CocoSet {
  struct Size {
    int width = 0;
    int height = 0;
  };

  data::ImageList images = {};   ///< all that the annotations list, by their ids; all of one class
  std::vector<Size> sizes = {};  ///< of each image, as annotated
  std::size_t categories = 0;
  std::string annotations = {};  ///< the content of the file
};

/// Reads the annotations and lists the folder of the images. Throws as read_coco() and Storage::list; EnvironmentError
/// as well if no image is listed, an image is listed twice or is not in the folder.
CocoSet list_coco_set(const data::Storage& storage, const std::string& split);

}  // namespace libtrain::pack
