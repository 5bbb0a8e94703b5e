#include <libtrain/data/image/geometry.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/decode_options.hpp>

namespace libtrain::data {

namespace {

// Of ScaleJitter: sides of 65535 pixels stay far below the limit of int.
constexpr double kSmallestScale = 0.001;
constexpr double kLargestScale = 100;

constexpr int kAttempts = 10;

void check_size(int width, int height) {
  if (width < 1 || height < 1) {
    throw UsageError(
        text("An image of ", width, " x ", height, " pixels cannot be cropped; it must have at least one."));
  }
}

// As Python's round: halves to even, the default rounding mode.
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

// The coordinate `place` of the file in the scaled image, relative to its pixel `origin`. Exact up to 2^24, because it
// is a division by a power of two.
float scaled_place(int place, int denominator, int origin) {
  return static_cast<float>(static_cast<double>(place) / denominator - origin);
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

Crop random_crop(int width, int height, const RandomCropOptions& options, int crop_width, int crop_height,
                 SampleRandom& random) {
  check_size(width, height);
  check_size(crop_width, crop_height);
  if (options.padding < 0 || options.padding > kLongestSide) {
    throw UsageError(
        text("RandomCropOptions::padding is ", options.padding, ", expected 0 to ", kLongestSide, " pixels."));
  }
  const std::int64_t places_x = std::int64_t{width} + 2 * options.padding - crop_width;
  const std::int64_t places_y = std::int64_t{height} + 2 * options.padding - crop_height;
  if (places_x < 0 || places_y < 0) {
    throw UsageError(text("A crop of ", crop_width, " x ", crop_height, " does not fit an image of ", width, " x ",
                          height, " pixels padded by ", options.padding,
                          "; use a smaller crop, or more RandomCropOptions::padding."));
  }
  Crop crop{.width = crop_width, .height = crop_height};
  crop.y = random.integer(0, static_cast<int>(places_y)) - options.padding;
  crop.x = random.integer(0, static_cast<int>(places_x)) - options.padding;
  return crop;
}

ResizedCrop resized_center_crop(int width, int height, int short_side, int crop_width, int crop_height) {
  check_size(width, height);
  if (short_side < 1 || crop_width < 1 || crop_height < 1) {
    throw UsageError(text("The shorter side is ", short_side, " and the crop ", crop_width, " x ", crop_height,
                          "; all must be at least 1."));
  }
  const std::int64_t long_side = std::int64_t{short_side} * std::max(width, height) / std::min(width, height);
  if (long_side > std::numeric_limits<int>::max()) {
    throw UsageError(text("An image of ", width, " x ", height, " pixels with a shorter side of ", short_side,
                          " would be ", long_side, " long; the limit is 2147483647."));
  }
  const auto longer = static_cast<int>(long_side);
  ResizedCrop result{.width = width <= height ? short_side : longer, .height = width <= height ? longer : short_side};
  if (crop_width > result.width || crop_height > result.height) {
    throw UsageError(text("A crop of ", crop_width, " x ", crop_height, " does not fit an image of ", width, " x ",
                          height, " resized to ", result.width, " x ", result.height,
                          "; increase short_side, or use a smaller crop."));
  }
  result.crop = {rounded((result.width - crop_width) / 2.0), rounded((result.height - crop_height) / 2.0), crop_width,
                 crop_height};
  return result;
}

ResizedCrop resized_whole(int width, int height, const ShorterSide& options) {
  check_size(width, height);
  for (const int size : {options.min_size, options.max_size}) {
    if (size >= 1 && size <= kLongestSide) continue;
    throw UsageError(text("ShorterSide has a min_size of ", options.min_size, " and a max_size of ", options.max_size,
                          ", expected 1 to ", kLongestSide, " pixels."));
  }
  const double scale = std::min(static_cast<double>(options.min_size) / std::min(width, height),
                                static_cast<double>(options.max_size) / std::max(width, height));
  const auto resized = [scale](int side) { return std::max(1, static_cast<int>(side * scale)); };
  ResizedCrop result{.width = resized(width), .height = resized(height)};
  result.crop = {.width = result.width, .height = result.height};
  return result;
}

ResizedCrop random_scaled_crop(int width, int height, const ScaleJitter& options, SampleRandom& random) {
  check_size(width, height);
  for (const int side : {options.width, options.height}) {
    if (side >= 1 && side <= kLongestSide) continue;
    throw UsageError(text("ScaleJitter has limits of ", options.width, " x ", options.height, " pixels, expected 1 to ",
                          kLongestSide, "."));
  }
  check_interval(options.scale, kSmallestScale, kLargestScale, "ScaleJitter::scale");
  const double fitting =
      std::min(static_cast<double>(options.width) / width, static_cast<double>(options.height) / height);
  const double scale = fitting * uniform(options.scale, random);
  const auto resized = [scale](int side) { return std::max(1, static_cast<int>(side * scale)); };
  ResizedCrop result{.width = resized(width), .height = resized(height)};
  Crop& crop = result.crop;
  crop.width = std::min(result.width, options.width);
  crop.height = std::min(result.height, options.height);
  crop.x = random.integer(0, result.width - crop.width);
  crop.y = random.integer(0, result.height - crop.height);
  return result;
}

namespace detail {

int choose_scale(int width, int height, int wanted_width, int wanted_height) {
  for (const int denominator : {8, 4, 2}) {
    if (width / denominator >= wanted_width && height / denominator >= wanted_height) return denominator;
  }
  return 1;
}

DecodePlan plan_crop(const Crop& crop, int scale_denominator) {
  const int right = crop.x + crop.width;
  const int bottom = crop.y + crop.height;
  DecodePlan plan{.scale_denominator = scale_denominator};
  plan.crop.x = crop.x / scale_denominator;
  plan.crop.y = crop.y / scale_denominator;
  plan.crop.width = scaled(right, scale_denominator) - plan.crop.x;
  plan.crop.height = scaled(bottom, scale_denominator) - plan.crop.y;
  plan.resize.box = ResizeBox{.left = scaled_place(crop.x, scale_denominator, plan.crop.x),
                              .top = scaled_place(crop.y, scale_denominator, plan.crop.y),
                              .right = scaled_place(right, scale_denominator, plan.crop.x),
                              .bottom = scaled_place(bottom, scale_denominator, plan.crop.y)};
  return plan;
}

DecodePlan plan_resized_crop(int width, int height, const ResizedCrop& resized, int scale_denominator) {
  const int scaled_width = scaled(width, scale_denominator);
  const int scaled_height = scaled(height, scale_denominator);
  DecodePlan plan{.scale_denominator = scale_denominator};
  plan.resize = {.box = ResizeBox{.right = scaled_place(width, scale_denominator, 0),
                                  .bottom = scaled_place(height, scale_denominator, 0)},
                 .width = resized.width,
                 .height = resized.height,
                 .x = resized.crop.x,
                 .y = resized.crop.y};
  plan.crop = needed_source(scaled_width, scaled_height, plan.resize, resized.crop.width, resized.crop.height);
  plan.resize.part = SourcePart{.x = plan.crop.x, .y = plan.crop.y, .width = scaled_width, .height = scaled_height};
  return plan;
}

}  // namespace detail

}  // namespace libtrain::data
