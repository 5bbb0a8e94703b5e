#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace libtrain::models {

/// Operators of detectors. Each is registered with torch as `libtrain::<name>`, so that profilers show it. Boxes are
/// [N, 4] of left, top, right and bottom, without an extra pixel at the right and bottom. Any thread may call them;
/// they use at::get_num_threads() threads, and their results do not depend on how many. Wrong shapes and types throw
/// c10::Error.

/// Intersection over union of each pair, [N, M], of the type of `a`; 0 for boxes that do not overlap, NaN for two
/// without area.
at::Tensor box_iou(const at::Tensor& a, const at::Tensor& b);

/// Greedy non-maximum suppression: a box is dropped if its intersection over union with a kept box of its group, of a
/// higher score, exceeds `threshold`. Boxes float [N, 4], scores float [N], groups int64 [N]. Returns the numbers of
/// the kept boxes, int64, by falling score; among equal scores the first comes first.
at::Tensor nms(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& groups, double threshold);

inline constexpr std::int64_t kBackground = -1;  ///< result of match_boxes: overlaps with no true box
inline constexpr std::int64_t kBetween = -2;     ///< result of match_boxes: neither background nor a match

struct MatchOptions {
  double at_least = 0.5;  ///< overlap of a match
  double below = 0.5;     ///< overlap of the background; what lies between is neither
  /// Whether each true box also gets the boxes that overlap with it the most, however little: S. Ren et al., Faster
  /// R-CNN, section 3.1.2. Such a box is still matched with the true box that it overlaps with the most.
  bool keep_best = false;
};

/// For each box the number of the true box that it overlaps with the most, kBackground or kBetween; int64 [N]. Of equal
/// overlaps the first counts. All are background if there are no true boxes. Both float32, [M, 4] and [N, 4]. On the
/// CPU it needs memory for N numbers, elsewhere for all pairs.
at::Tensor match_boxes(const at::Tensor& truth, const at::Tensor& boxes, const MatchOptions& options);

/// Chooses at random up to `count` of those whose label is at least 0, of which up to count * positive_fraction
/// (rounded down) have a label above 0; int64, in ascending order. Labels int64 [N]. The choice depends on labels and
/// seed alone, not on the device: those are chosen whose mix_bits(seed + number) is the smallest (Stafford's Mix13, in
/// libtrain/base/splitmix.hpp). Seeds should be far apart, such as hashes.
at::Tensor sample_labels(const at::Tensor& labels, std::int64_t count, double positive_fraction, std::uint64_t seed);

struct RoiAlignOptions {
  std::int64_t output_size = 7;
  /// Points in each direction of a bin of the output; 0 for as many as a bin has cells of the map, rounded up.
  std::int64_t sampling_ratio = 2;
  /// Pixels per cell of each map, rising by factors of two.
  std::vector<double> strides = {4, 8, 16, 32};
  /// A box of this size, in pixels, is taken from the map of stride 16, one of half the size from that of stride 8:
  /// T. Lin et al., Feature Pyramid Networks, equation 1.
  double canonical_size = 224;
};

/// Bilinear crops of the boxes out of feature maps [B, C, H, W], float32, float64 or bfloat16: K. He et al., Mask
/// R-CNN, section 3, with the coordinates of torchvision's roi_align(aligned=False), which has no offset of half a
/// cell. `boxes` [K, 4] in pixels of the images, `images` int64 [K]: which of the B images each box is in. Returns [K,
/// C, output_size, output_size] of the maps' type and memory format; bfloat16 is added up in float32. Differentiable
/// with respect to the maps; the same input gives the same gradient to the last bit.
at::Tensor roi_align(const std::vector<at::Tensor>& maps, const at::Tensor& boxes, const at::Tensor& images,
                     const RoiAlignOptions& options);

/// What a mask head should predict: for each box the crop of mask `matches[k]`, by roi_align with sampling_ratio 0 and
/// stride 1, float32 [K, output_size, output_size] from 0 to 1, not thresholded. Masks uint8 [N, H, W] of 0 and 1,
/// boxes [K, 4], matches int64 [K].
at::Tensor mask_targets(const at::Tensor& masks, const at::Tensor& boxes, const at::Tensor& matches,
                        std::int64_t output_size);

}  // namespace libtrain::models
