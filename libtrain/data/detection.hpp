#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/image/geometry.hpp>
#include <libtrain/data/image/image_pipeline.hpp>
#include <libtrain/data/indexed_dataset.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

/// The N objects in an image of height H and width W.
struct DetectionTarget {
  at::Tensor boxes;   ///< float32 [N, 4]: left, top, right, bottom in pixels
  at::Tensor labels;  ///< int64 [N]: number of the category by id, from 1 on, or its id (labels_are_ids)
  at::Tensor masks;   ///< uint8 [N, H, W]: 1 for pixels of the object; undefined without CocoDetectionOptions::masks
  at::Tensor crowd;   ///< bool [N]: true for a region of many objects
  at::Tensor area;    ///< float32 [N]: the annotated area of the mask, in pixels of the stored image
  std::int64_t image_id = 0;
};

struct DetectionSample {
  at::Tensor image;  ///< [3, H, W]
  DetectionTarget target;
};

/// Images of different sizes in one tensor.
struct DetectionBatch {
  at::Tensor images;                     ///< [B, 3, H, W]: each at the top left, padded with zeros
  at::Tensor sizes;                      ///< int64 [B, 2]: height and width of each image
  std::vector<DetectionTarget> targets;  ///< of each image; masks are as large as the image, not as the batch
};

/// H and W are the largest height and width, rounded up to a multiple of `multiple_of`; 0 without images. Throws
/// UsageError if `multiple_of` is below 1.
DetectionBatch pad_detections(const std::vector<DetectionSample>& samples, std::int64_t multiple_of = 32);

template <typename Visit>
void visit_tensors(DetectionBatch& batch, const Visit& visit) {
  visit(batch.images);
  visit(batch.sizes);
  for (auto& target : batch.targets) {
    visit(target.boxes);
    visit(target.labels);
    visit(target.masks);
    visit(target.crowd);
    visit(target.area);
  }
}

struct CocoDetectionOptions {
  CocoUse use = CocoUse::training;
  CocoMalformed malformed = CocoMalformed::refuse;
  bool masks = true;
  /// How images and their objects are resized, cropped and mirrored. Only float32 and NCHW, without TrivialAugment and
  /// RandAugment; a uint8_step must not move objects.
  ImagePipelineOptions images = {.shorter_side = ShorterSide{}};
  /// Probability that objects of another image, which is chosen at random and read and augmented like the image itself,
  /// are pasted onto an image: see paste_objects() (libtrain/data/copy_paste.hpp). Needs masks. If the other image
  /// cannot be read, nothing is pasted; it is an error where it is a sample itself.
  double copy_paste = 0;
  /// Labels are the ids of categories, with gaps where the file has none, as in torchvision's weights of COCO:
  /// classes() then has a category for each id from 1 on. Ids must be 1 to 65535.
  bool labels_are_ids = false;
  /// A local folder for the indices of tar archives: see ShardOptions.
  std::string index_folder = {};
};

/// Images with objects, annotated by an instances file of COCO.
///
///     const lt::data::CocoDetection set{storage, "train2017", "annotations/instances_train2017.json"};
///     lt::data::DataLoaderOf loader(set, [](const auto& samples) { return lt::data::pad_detections(samples); }, ...);
class CocoDetection : public DatasetOf<DetectionSample> {
 public:
  /// `folder` contains the images, as files or in tar archives (see open_named_images()), `annotations` is the
  /// instances file; both are paths below the storage's root. With CocoUse::training images without an object that is
  /// not a crowd are left out. Throws as read_coco(), open_named_images() and ImagePipeline do, and EnvironmentError if
  /// no image is left.
  CocoDetection(std::shared_ptr<const Storage> storage, const std::string& folder, const std::string& annotations,
                const CocoDetectionOptions& options = {});

  std::uint64_t size() const override { return images_.size(); }

  /// Objects of which less than a pixel is left in width or height are left out, except with ShorterSide: there all
  /// stay, and the box of one outside of the image has no area, which MaskRcnnImpl::losses() refuses. With copy_paste
  /// the sample depends on another image of the set, which `random` chooses. Throws EnvironmentError if the image
  /// cannot be read or its size differs from the annotations, and StorageUnavailable also for the other image.
  DetectionSample get(std::uint64_t index, SampleRandom& random) const override;

  SampleOrigin origin(std::uint64_t index) const override { return source_->origin(index); }

  /// Includes the annotations.
  DatasetIdentity identity() const override;
  std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& order) const override {
    return source_->read_ahead(order);
  }

  /// The group of each sample for LoaderOptions::groups, of the sizes in the annotations: as the function of that name
  /// (libtrain/data/aspect_ratio_groups.hpp). Only for images that are resized as a whole: a crop changes their shape.
  std::vector<std::uint8_t> aspect_ratio_groups(int factor = 3) const;

  /// The categories by label - 1: classes()[0] has label 1.
  const std::vector<CocoCategory>& classes() const { return annotations_.categories; }
  const CocoAnnotations& annotations() const { return annotations_; }

 private:
  DetectionSample read(std::uint64_t index, SampleRandom& random) const;
  DetectionTarget target_of(std::size_t image, const Geometry& geometry) const;
  void paint_mask(const CocoAnnotation& annotation, const CocoImage& image, const Geometry& geometry,
                  std::uint8_t* mask) const;

  const CocoDetectionOptions options_;
  CocoAnnotations annotations_;
  std::vector<std::uint32_t> images_;  // index in the annotations of each sample's image
  std::unique_ptr<const ImageSource> source_;
};

}  // namespace libtrain::data
