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

/// The N objects in a picture of height H and width W.
struct DetectionTarget {
  at::Tensor boxes;   ///< float32 [N, 4]: left, top, right, bottom in pixels
  at::Tensor labels;  ///< int64 [N]: the category's place by id, from 1 on; 0 is left for the background
  at::Tensor masks;   ///< uint8 [N, H, W]: 1 where the object is; undefined where none were asked for
  at::Tensor crowd;   ///< bool [N]: a region of many objects rather than one
  at::Tensor area;    ///< float32 [N]: as annotated, of the mask in the picture as it is stored, in its pixels
  std::int64_t image_id = 0;
};

struct DetectionSample {
  at::Tensor image;  ///< [3, H, W]
  DetectionTarget target;
};

/// Pictures of different sizes in one tensor.
struct DetectionBatch {
  at::Tensor images;                     ///< [B, 3, H, W]: each at the top left, zeros beside it
  at::Tensor sizes;                      ///< int64 [B, 2]: height and width of each picture
  std::vector<DetectionTarget> targets;  ///< of each picture; masks are as large as the picture, not as the batch
};

/// H and W are those of the largest pictures, rounded up to a multiple of `multiple_of`; 0 for no pictures. Throws
/// UsageError where `multiple_of` is below 1.
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
  bool masks = true;
  /// How pictures are resized, cropped and mirrored, and their objects with them. float32 and NCHW; no TrivialAugment
  /// and RandAugment, and a uint8_step that leaves objects where they are.
  ImagePipelineOptions images = {.shorter_side = ShorterSide{}};
};

/// Pictures with objects, annotated as COCO's instances files do it.
///
///     const lt::data::CocoDetection set{storage, "train2017", "annotations/instances_train2017.json"};
///     lt::data::DataLoaderOf loader(set, [](const auto& samples) { return lt::data::pad_detections(samples); }, ...);
class CocoDetection : public DatasetOf<DetectionSample> {
 public:
  /// `folder` has the pictures, `annotations` is the instances file; both are paths below the storage's root. With
  /// CocoUse::training pictures without an object that is not a crowd are left out. Throws as read_coco() and
  /// ImagePipeline do, and EnvironmentError where no picture is left.
  CocoDetection(std::shared_ptr<const Storage> storage, const std::string& folder, const std::string& annotations,
                const CocoDetectionOptions& options = {});

  std::uint64_t size() const override { return images_.size(); }

  /// Objects of which less than a pixel is left by a crop are left out. Throws EnvironmentError where the picture
  /// cannot be read, or is not of the size that the annotations say.
  DetectionSample get(std::uint64_t index, SampleRandom& random) const override;

  SampleOrigin origin(std::uint64_t index) const override { return source_->origin(index); }

  /// Covers the annotations as well.
  DatasetIdentity identity() const override;
  std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& order) const override {
    return source_->read_ahead(order);
  }

  /// By label, which starts at 1: classes()[0] is the first category, with label 1.
  const std::vector<CocoCategory>& classes() const { return annotations_.categories; }
  const CocoAnnotations& annotations() const { return annotations_; }

 private:
  DetectionTarget target_of(std::size_t image, const Geometry& geometry) const;
  void paint_mask(const CocoAnnotation& annotation, const CocoImage& image, const Geometry& geometry,
                  std::uint8_t* mask) const;

  const CocoDetectionOptions options_;
  CocoAnnotations annotations_;
  std::vector<std::uint32_t> images_;  // of each sample, its place in the annotations
  std::unique_ptr<const ImageSource> source_;
};

}  // namespace libtrain::data
