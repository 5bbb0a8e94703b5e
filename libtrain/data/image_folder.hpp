#pragma once

#include <memory>
#include <string>

#include <libtrain/data/image_dataset.hpp>
#include <libtrain/data/sources/folder_images.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::data {

/// Images in folders named after their classes, as in torchvision's ImageFolder: see list_image_folder(). By default
/// they get the augmentation of ImageNet training, to float32 [3, 224, 224]; for evaluation pass evaluation_images().
class ImageFolder : public ImageDataset {
 public:
  /// `location` is a local path or a URI. Throws as open_storage(), FolderImages and ImagePipeline do.
  explicit ImageFolder(const std::string& location, const ImagePipelineOptions& images = training_images(),
                       const FolderImagesOptions& options = {})
      : ImageFolder(open_storage(location), images, options) {}

  /// Uses a storage that is already open, such as that of Context::storage().
  explicit ImageFolder(std::shared_ptr<const Storage> storage, const ImagePipelineOptions& images = training_images(),
                       const FolderImagesOptions& options = {})
      : ImageDataset(std::make_shared<const FolderImages>(std::move(storage), options), images) {}
};

}  // namespace libtrain::data
