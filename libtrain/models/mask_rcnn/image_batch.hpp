#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

namespace libtrain::models {

/// How images become a batch; the defaults are torchvision's.
struct ImageBatchOptions {
  std::int64_t min_size = 800;  ///< pixels of the shorter side, fewer if the longer side would exceed max_size
  std::int64_t max_size = 1333;
  std::array<double, 3> mean = {0.485, 0.456, 0.406};  ///< of red, green and blue from 0 to 1
  std::array<double, 3> std = {0.229, 0.224, 0.225};
};

/// Normalises float32 images [3, h, w] with values from 0 to 1, resizes them (bilinear, without antialiasing), and pads
/// them to one size, a multiple of 32. For images that are not read by data::CocoDetection, which does the same while
/// it decodes, with antialiasing.
ImageBatch make_image_batch(const std::vector<at::Tensor>& images, const ImageBatchOptions& options = {});

/// Detections in pixels of an image of size `from` as those of size `to`.
void resize_boxes(Detections& detections, const ImageSize& from, const ImageSize& to);

/// Enlarges masks [N, M, M] to their boxes [N, 4] in an image: probabilities, float32 [N, height, width] that
/// fade out across the edge of the box, to 0 from half a cell of the mask outside of it on, as torchvision's
/// paste_masks_in_image.
at::Tensor paste_masks(const at::Tensor& masks, const at::Tensor& boxes, const ImageSize& image);

/// The pixels of which the probability is at least `threshold`: uint8 [N, height, width] of 0 and 1. Faster than
/// comparing the result of the other.
at::Tensor paste_masks(const at::Tensor& masks, const at::Tensor& boxes, const ImageSize& image, double threshold);

}  // namespace libtrain::models
