#pragma once

#include <array>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

namespace libtrain::models::detail {

/// Outputs of layers as numbers to compute losses and boxes with: 16-bit floats become float32.
at::Tensor widened(const at::Tensor& values);

/// Boxes as corrections of other boxes: R. Girshick et al., Rich feature hierarchies, arXiv:1311.2524, appendix C. The
/// four numbers of a correction are multiplied by the weights.
struct BoxCoding {
  std::array<double, 4> weights = {1, 1, 1, 1};

  /// Both [N, 4]: what decode() makes `boxes` of `references` with.
  at::Tensor encode(const at::Tensor& boxes, const at::Tensor& references) const;

  /// Corrections [..., 4] of references of the same shape. A box grows to 1000 / 16 times its reference's size at most.
  at::Tensor decode(const at::Tensor& corrections, const at::Tensor& references) const;
};

/// Boxes [..., 4], cut off at the borders of the image.
at::Tensor clip_boxes(const at::Tensor& boxes, const ImageSize& image);

/// Whether both sides of each box are at least `side`: bool [N].
at::Tensor are_as_large_as(const at::Tensor& boxes, double side);

/// All anchors of each level, [h * w * A, 4]: by row, column and ratio. `padded` is the size of the batch's images. The
/// distance of anchors is the whole part of padded / cells: 61 pixels for 13 rows of 800, as in torchvision.
std::vector<at::Tensor> make_anchors(const AnchorOptions& options, const std::vector<at::Tensor>& maps,
                                     const ImageSize& padded);

/// Smooth L1 with the knee at 1/9, added up.
at::Tensor box_loss_sum(const at::Tensor& corrections, const at::Tensor& wanted);

}  // namespace libtrain::models::detail
