#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/mask_rcnn/image_batch.hpp>
#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

/// Detections of a network, on the CPU and in pixels of an image of such a size, as libtrain's data functions take
/// them.

/// The pixels of detection `number` of which the probability is at least one half. Only this mask is made, which is as
/// large as the image.
inline libtrain::data::RunLength detected_mask(const libtrain::models::Detections& detections, std::int64_t number,
                                               const libtrain::models::ImageSize& size) {
  const auto columns = libtrain::models::paste_masks(detections.masks.slice(0, number, number + 1),
                                                     detections.boxes.slice(0, number, number + 1), size, 0.5)
                           .transpose(1, 2)
                           .contiguous();
  return libtrain::data::encode_mask(
      {columns.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(columns.numel())},
      static_cast<std::uint32_t>(size.height), static_cast<std::uint32_t>(size.width));
}

/// Those with a score of at least `least_score`. Without names of classes, the numbers of the labels are the names.
inline std::vector<libtrain::data::DrawnDetection> detected_objects(const libtrain::models::Detections& detections,
                                                                    const libtrain::models::ImageSize& size,
                                                                    double least_score,
                                                                    const std::vector<std::string>& classes) {
  std::vector<libtrain::data::DrawnDetection> objects;
  for (std::int64_t k = 0; k < detections.labels.size(0); ++k) {
    const auto score = detections.scores[k].item<float>();
    if (score < least_score) break;  // they are sorted
    const auto box = detections.boxes[k].contiguous();
    const auto* corner = box.const_data_ptr<float>();
    const auto label = detections.labels[k].item<std::int64_t>();
    libtrain::data::DrawnDetection object{
        .box = {corner[0], corner[1], corner[2], corner[3]},
        .name = classes.empty() ? std::to_string(label) : classes[static_cast<std::size_t>(label - 1)],
        .score = score};
    if (detections.masks.defined()) object.mask = detected_mask(detections, k, size);
    objects.push_back(std::move(object));
  }
  return objects;
}
