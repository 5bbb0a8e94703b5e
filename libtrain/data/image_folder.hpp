#pragma once

#include <memory>
#include <string>

#include <libtrain/data/image_dataset.hpp>
#include <libtrain/data/sources/folder_images.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::data {

/// Images in folders named after their classes, as torchvision's ImageFolder has them: see list_image_folder(). By
/// default they are augmented as ImageNet is for training, to float32 [3, 224, 224]; evaluation_images() has the other
/// half.
class ImageFolder : public ImageDataset {
 public:
  /// `location` is a local path or a URI. Throws as open_storage(), FolderImages and ImagePipeline do.
  explicit ImageFolder(const std::string& location, const ImagePipelineOptions& images = training_images(),
                       const FolderImagesOptions& options = {})
      : ImageFolder(open_storage(location), images, options) {}

  /// Of a storage that was opened before, such as by Context::storage().
  explicit ImageFolder(std::shared_ptr<const Storage> storage, const ImagePipelineOptions& images = training_images(),
                       const FolderImagesOptions& options = {})
      : ImageDataset(std::make_shared<const FolderImages>(std::move(storage), options), images) {}
};

}  // namespace libtrain::data
