#pragma once

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/random_draws.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// torchvision's defaults.
struct RandomResizedCropOptions {
  Interval scale = {0.08, 1.0};             ///< of the crop's area, as a share of the picture's
  Interval ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< of the crop's width to its height
};

/// The rectangle that torchvision's RandomResizedCrop.get_params draws: an area uniform over `scale`, a ratio whose
/// logarithm is uniform over that of `ratio`, sides rounded half to even; up to ten such draws until one fits, then a
/// uniform place; failing those, the largest rectangle in the middle whose ratio is allowed.
/// Throws UsageError for an empty picture, a scale outside (0, 1], or a ratio that is not positive.
Crop random_resized_crop(int width, int height, const RandomResizedCropOptions& options, SampleRandom& random);

/// A picture resized, and what is cut out of it.
struct ResizedCrop {
  int width = 0;  ///< of the whole resized picture
  int height = 0;
  Crop crop = {};  ///< in the resized picture

  bool operator==(const ResizedCrop&) const = default;
};

/// What torchvision's Resize(short_side) and CenterCrop((crop_height, crop_width)) do to a picture: the shorter side
/// becomes `short_side`, the longer short_side * longer / shorter, rounded down; offsets are rounded half to even.
/// Throws UsageError for sizes below 1, where the longer side is beyond 2^31 - 1, and where the crop is larger than the
/// resized picture, which torchvision would pad with zeros.
ResizedCrop resized_center_crop(int width, int height, int short_side, int crop_width, int crop_height);

}  // namespace libtrain::data
