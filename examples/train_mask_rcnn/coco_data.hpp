#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/mask_rcnn/image_batch.hpp>
#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

#include "../detected_objects.hpp"

/// What a network takes and gives, as batches and results of COCO data sets.

inline libtrain::models::ImageBatch image_batch(const libtrain::data::DetectionBatch& batch) {
  libtrain::models::ImageBatch images{.images = batch.images, .sizes = {}};
  const auto sizes = batch.sizes.cpu();
  for (std::int64_t k = 0; k < sizes.size(0); ++k) {
    images.sizes.push_back({sizes[k][0].item<std::int64_t>(), sizes[k][1].item<std::int64_t>()});
  }
  return images;
}

/// The objects to learn: neither crowds, nor what has no area once it is resized.
inline libtrain::models::ObjectTargets object_targets(const libtrain::data::DetectionTarget& target, std::uint64_t seed,
                                                      std::int64_t step) {
  const auto sides = target.boxes.slice(1, 2) - target.boxes.slice(1, 0, 2);
  const auto kept = sides.gt(0).all(1).logical_and(target.crowd.logical_not()).nonzero().squeeze(1);
  return {.boxes = target.boxes.index_select(0, kept),
          .labels = target.labels.index_select(0, kept),
          .masks = target.masks.defined() ? target.masks.index_select(0, kept) : torch::Tensor(),
          .seed = libtrain::models::sampling_seed(seed, step, target.image_id)};
}

inline libtrain::models::Detections on_cpu(const libtrain::models::Detections& detections) {
  return {.boxes = detections.boxes.cpu(),
          .labels = detections.labels.cpu(),
          .scores = detections.scores.cpu(),
          .masks = detections.masks.defined() ? detections.masks.cpu() : torch::Tensor()};
}

/// Adds the detections in an image, on the CPU, of which the network has seen one of size `seen`, to the results.
inline void add_results(libtrain::models::Detections detections, const libtrain::models::ImageSize& seen,
                        const libtrain::data::CocoImage& image, std::span<const std::int64_t> category_ids,
                        std::vector<libtrain::data::CocoResult>& results) {
  const libtrain::models::ImageSize size{image.height, image.width};
  libtrain::models::resize_boxes(detections, seen, size);
  const auto& [boxes, labels, scores, masks] = detections;
  for (std::int64_t k = 0; k < labels.size(0); ++k) {
    const auto* box = boxes.const_data_ptr<float>() + 4 * k;
    libtrain::data::CocoResult result{
        .image_id = image.id,
        .category_id = category_ids[static_cast<std::size_t>(labels[k].item<std::int64_t>() - 1)],
        .score = scores[k].item<float>(),
        .box = {box[0], box[1], double{box[2]} - box[0], double{box[3]} - box[1]}};
    if (masks.defined()) result.mask = detected_mask(detections, k, size);
    results.push_back(std::move(result));
  }
}
