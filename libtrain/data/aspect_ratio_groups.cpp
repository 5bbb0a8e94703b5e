#include <libtrain/data/aspect_ratio_groups.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

constexpr int kLargestFactor = 127;  // 256 groups

// Only 1/2, 1 and 2 can be the ratio of an image; exp2() has these exactly, so that every platform has the same groups.
std::vector<double> bounds_of_ratios(int factor) {
  std::vector<double> bounds;
  for (int i = -factor; i <= factor; ++i)
    bounds.push_back(factor == 0 ? 1 : std::exp2(static_cast<double>(i) / factor));
  return bounds;
}

}  // namespace

std::vector<std::uint8_t> aspect_ratio_groups(std::span<const ImageExtent> images, int factor) {
  if (factor < 0 || factor > kLargestFactor) {
    throw UsageError(text("The factor of the aspect-ratio groups is ", factor, ". Set it to a number from 0 to ",
                          kLargestFactor, "; 3 is usual."));
  }
  const std::vector<double> bounds = bounds_of_ratios(factor);
  std::vector<std::uint8_t> groups;
  groups.reserve(images.size());
  for (std::size_t k = 0; k < images.size(); ++k) {
    const auto [width, height] = images[k];
    if (width < 1 || height < 1) {
      throw UsageError(text("Image ", k, " is ", width, " x ", height,
                            " pixels. Give the sizes of images that have a "
                            "width and a height."));
    }
    const auto group = std::upper_bound(bounds.begin(), bounds.end(), static_cast<double>(height) / width);
    groups.push_back(static_cast<std::uint8_t>(group - bounds.begin()));
  }
  return groups;
}

}  // namespace libtrain::data
