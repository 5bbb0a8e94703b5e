#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace libtrain::data {

struct ImageExtent {
  std::int32_t width = 0;   ///< pixels
  std::int32_t height = 0;  ///< pixels
};

/// The group of each image, by height / width, for LoaderOptions::groups. The bounds are those of torchvision's
/// references/detection (`--aspect-ratio-group-factor`), which takes width / height, so its numbers are the reverse:
/// 2 * factor + 1 bounds at 2^(i / factor) for i from -factor to factor, an image at a bound in the group above. Group
/// 0 is below 1/2, group 2 * factor + 1 at least 2. A factor of 0 has the bound 1: landscape in group 0, square and
/// portrait in group 1.
///
/// Throws UsageError for a factor outside [0, 127], and for an image without pixels.
std::vector<std::uint8_t> aspect_ratio_groups(std::span<const ImageExtent> images, int factor = 3);

}  // namespace libtrain::data
