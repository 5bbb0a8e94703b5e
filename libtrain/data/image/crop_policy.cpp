#include <libtrain/data/image/crop_policy.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

constexpr int kAttempts = 10;

void check_size(int width, int height) {
  if (width < 1 || height < 1) {
    throw UsageError(text("A picture of ", width, " x ", height, " pixels cannot be cropped; it must have one."));
  }
}

// As Python's round: halves to even, the processor's default.
int rounded(double value) {
  return static_cast<int>(std::nearbyint(value));
}

Crop largest_crop(int width, int height, const Interval& ratio) {
  const double whole = static_cast<double>(width) / height;
  int crop_width = width;
  int crop_height = height;
  if (whole < ratio.low) {
    crop_height = std::clamp(rounded(width / ratio.low), 1, height);
  } else if (whole > ratio.high) {
    crop_width = std::clamp(rounded(height * ratio.high), 1, width);
  }
  return {(width - crop_width) / 2, (height - crop_height) / 2, crop_width, crop_height};
}

}  // namespace

Crop random_resized_crop(int width, int height, const RandomResizedCropOptions& options, SampleRandom& random) {
  constexpr double kSmallest = std::numeric_limits<double>::min();
  check_size(width, height);
  check_interval(options.scale, kSmallest, 1, "area of a crop");
  check_interval(options.ratio, kSmallest, std::numeric_limits<double>::max(), "ratio of a crop");

  const double area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double crop_area = area * uniform(options.scale, random);
    const double ratio = log_uniform(options.ratio, random);
    const double crop_width = std::nearbyint(std::sqrt(crop_area * ratio));
    const double crop_height = std::nearbyint(std::sqrt(crop_area / ratio));
    if (crop_width < 1 || crop_width > width || crop_height < 1 || crop_height > height) continue;
    Crop crop{.width = static_cast<int>(crop_width), .height = static_cast<int>(crop_height)};
    crop.y = random.integer(0, height - crop.height);
    crop.x = random.integer(0, width - crop.width);
    return crop;
  }
  return largest_crop(width, height, options.ratio);
}

ResizedCrop resized_center_crop(int width, int height, int short_side, int crop_width, int crop_height) {
  check_size(width, height);
  if (short_side < 1 || crop_width < 1 || crop_height < 1) {
    throw UsageError(text("A shorter side of ", short_side, " with a crop of ", crop_width, " x ", crop_height,
                          " was asked for; all must be at least 1."));
  }
  const std::int64_t long_side = std::int64_t{short_side} * std::max(width, height) / std::min(width, height);
  if (long_side > std::numeric_limits<int>::max()) {
    throw UsageError(text("A picture of ", width, " x ", height, " pixels with a shorter side of ", short_side,
                          " would be ", long_side, " long; the limit is 2147483647."));
  }
  const auto longer = static_cast<int>(long_side);
  ResizedCrop result{.width = width <= height ? short_side : longer, .height = width <= height ? longer : short_side};
  if (crop_width > result.width || crop_height > result.height) {
    throw UsageError(text("A crop of ", crop_width, " x ", crop_height, " does not fit a picture of ", width, " x ",
                          height, " resized to ", result.width, " x ", result.height,
                          "; take a longer shorter side, or a smaller crop."));
  }
  result.crop = {rounded((result.width - crop_width) / 2.0), rounded((result.height - crop_height) / 2.0), crop_width,
                 crop_height};
  return result;
}

}  // namespace libtrain::data
