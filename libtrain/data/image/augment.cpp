#include <libtrain/data/image/augment.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/detail/color.hpp>
#include <libtrain/data/image/random_draws.hpp>
#include <libtrain/numeric/detail/float16.hpp>

namespace libtrain::data {

namespace {

constexpr int kTrivialMagnitudes = 31;
constexpr int kErasingAttempts = 10;

struct MagnitudeRange {  // of an operation's magnitudes
  double first = 0;
  double last = 0;
  bool either_sign = false;
};

// The largest magnitudes. The smallest ones change nothing.
struct Extents {
  double shear = 0;
  double translation_x = 0;  // pixels
  double translation_y = 0;
  double degrees = 0;
  double factor = 0;
  double bits = 0;  // kept
};

constexpr Extents kTrivialExtents{
    .shear = 0.99, .translation_x = 32, .translation_y = 32, .degrees = 135, .factor = 0.99, .bits = 2};

Extents rand_extents(int width, int height) {
  constexpr double kTranslation = 150.0 / 331.0;
  return {.shear = 0.3,
          .translation_x = kTranslation * width,
          .translation_y = kTranslation * height,
          .degrees = 30,
          .factor = 0.9,
          .bits = 4};
}

MagnitudeRange range_of(AugmentOperation operation, const Extents& extents) {
  switch (operation) {
    case AugmentOperation::shear_x:
    case AugmentOperation::shear_y:
      return {0, extents.shear, true};
    case AugmentOperation::translate_x:
      return {0, extents.translation_x, true};
    case AugmentOperation::translate_y:
      return {0, extents.translation_y, true};
    case AugmentOperation::rotate:
      return {0, extents.degrees, true};
    case AugmentOperation::brightness:
    case AugmentOperation::color:
    case AugmentOperation::contrast:
    case AugmentOperation::sharpness:
      return {0, extents.factor, true};
    case AugmentOperation::posterize:
      return {8, extents.bits, false};
    case AugmentOperation::solarize:
      return {255, 0, false};
    case AugmentOperation::identity:
    case AugmentOperation::autocontrast:
    case AugmentOperation::equalize:
      break;
  }
  return {};
}

AugmentOperation draw_operation(SampleRandom& random) {
  return static_cast<AugmentOperation>(random.integer(0, kAugmentOperations - 1));
}

// The magnitude `number` of `count`, with a random sign if it has one.
AugmentStep draw_step(AugmentOperation operation, const MagnitudeRange& range, int number, int count,
                      SampleRandom& random) {
  double magnitude = range.first + (range.last - range.first) * number / (count - 1);
  if (operation == AugmentOperation::posterize) magnitude = std::nearbyint(magnitude);
  if (range.either_sign && random.integer(0, 1) == 1) magnitude = -magnitude;
  return {.operation = operation, .magnitude = magnitude};
}

std::optional<double> draw_factor(double extent, SampleRandom& random) {
  if (extent == 0) return std::nullopt;
  return uniform({std::max(0.0, 1 - extent), 1 + extent}, random);
}

void apply_change(ColorChange change, const ColorJitter& jitter, Image& image) {
  switch (change) {
    case ColorChange::brightness:
      if (jitter.brightness) detail::adjust_brightness(image, *jitter.brightness);
      return;
    case ColorChange::contrast:
      if (jitter.contrast) detail::adjust_contrast(image, *jitter.contrast);
      return;
    case ColorChange::saturation:
      if (jitter.saturation) detail::adjust_saturation(image, *jitter.saturation);
      return;
    case ColorChange::hue:
      if (jitter.hue) detail::adjust_hue(image, *jitter.hue);
      return;
  }
}

void store(float value, PixelType type, void* to) {
  if (type == PixelType::float32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const auto bits = type == PixelType::float16
                        ? static_cast<std::uint16_t>(libtrain::detail::narrow<libtrain::detail::Float16>(value))
                        : static_cast<std::uint16_t>(libtrain::detail::narrow<libtrain::detail::BFloat16>(value));
  std::memcpy(to, &bits, sizeof bits);
}

void check_erased(const PixelTarget& image, const Crop& area) {
  if (image.type == PixelType::uint8) {
    throw UsageError("Random erasing writes normalised values, but the image's type is uint8. Use a float type.");
  }
  if (image.channels != 1 && image.channels != 3) {
    throw UsageError(text("An image to erase from has ", image.channels, " channels; it must have 1 or 3."));
  }
  if (!lies_inside(area, image.width, image.height)) {
    throw UsageError(text("A rectangle of ", area.width, " x ", area.height, " pixels at (", area.x, ", ", area.y,
                          ") cannot be erased from an image of ", image.width, " x ", image.height,
                          "; it must lie inside."));
  }
}

}  // namespace

AugmentStep draw_trivial_augment(SampleRandom& random) {
  const AugmentOperation operation = draw_operation(random);
  const MagnitudeRange range = range_of(operation, kTrivialExtents);
  if (range.first == range.last) return {.operation = operation};
  const int number = random.integer(0, kTrivialMagnitudes - 1);
  return draw_step(operation, range, number, kTrivialMagnitudes, random);
}

std::vector<AugmentStep> draw_rand_augment(const RandAugmentOptions& options, int width, int height,
                                           SampleRandom& random) {
  if (options.operations < 0 || options.magnitudes < 2 || options.magnitude < 0 ||
      options.magnitude >= options.magnitudes) {
    throw UsageError(text("RandAugmentOptions has operations ", options.operations, ", magnitude ", options.magnitude,
                          " and magnitudes ", options.magnitudes,
                          "; operations must be 0 or more, magnitudes 2 or more, and magnitude from 0 to magnitudes - "
                          "1."));
  }
  std::vector<AugmentStep> steps;
  for (int i = 0; i < options.operations; ++i) {
    const AugmentOperation operation = draw_operation(random);
    const MagnitudeRange range = range_of(operation, rand_extents(width, height));
    steps.push_back(draw_step(operation, range, options.magnitude, options.magnitudes, random));
  }
  return steps;
}

void apply_augment(const AugmentStep& step, Image& image, const FillColor& fill) {
  const double magnitude = step.magnitude;
  switch (step.operation) {
    case AugmentOperation::identity:
      return;
    case AugmentOperation::shear_x:
      return affine(image, shear_x_matrix(magnitude), fill);
    case AugmentOperation::shear_y:
      return affine(image, shear_y_matrix(magnitude), fill);
    case AugmentOperation::translate_x:
      return affine(image, translation_matrix(static_cast<int>(magnitude), 0), fill);
    case AugmentOperation::translate_y:
      return affine(image, translation_matrix(0, static_cast<int>(magnitude)), fill);
    case AugmentOperation::rotate:
      return affine(image, rotation_matrix(magnitude, image.width, image.height), fill);
    case AugmentOperation::brightness:
      return detail::adjust_brightness(image, 1 + magnitude);
    case AugmentOperation::color:
      return detail::adjust_saturation(image, 1 + magnitude);
    case AugmentOperation::contrast:
      return detail::adjust_contrast(image, 1 + magnitude);
    case AugmentOperation::sharpness:
      return detail::adjust_sharpness(image, 1 + magnitude);
    case AugmentOperation::posterize:
      return detail::posterize(image, static_cast<int>(magnitude));
    case AugmentOperation::solarize:
      return detail::solarize(image, magnitude);
    case AugmentOperation::autocontrast:
      return detail::autocontrast(image);
    case AugmentOperation::equalize:
      return detail::equalize(image);
  }
}

ColorJitter draw_color_jitter(const ColorJitterOptions& options, SampleRandom& random) {
  constexpr double kUnbounded = std::numeric_limits<double>::max();
  const auto check = [](double extent, double largest, const char* what) {
    check_interval({extent, extent}, 0, largest, what);
  };
  check(options.brightness, kUnbounded, "jitter of brightness");
  check(options.contrast, kUnbounded, "jitter of contrast");
  check(options.saturation, kUnbounded, "jitter of saturation");
  check(options.hue, 0.5, "jitter of hue");

  ColorJitter jitter;
  // Fisher-Yates: the same result on every platform, which std::shuffle does not guarantee.
  for (std::size_t left = jitter.order.size(); left > 1; --left) {
    const auto chosen = static_cast<std::size_t>(random.integer(0, static_cast<int>(left) - 1));
    std::swap(jitter.order[left - 1], jitter.order[chosen]);
  }
  jitter.brightness = draw_factor(options.brightness, random);
  jitter.contrast = draw_factor(options.contrast, random);
  jitter.saturation = draw_factor(options.saturation, random);
  if (options.hue != 0) jitter.hue = uniform({-options.hue, options.hue}, random);
  return jitter;
}

void apply_color_jitter(const ColorJitter& jitter, Image& image) {
  for (const ColorChange change : jitter.order) apply_change(change, jitter, image);
}

std::optional<Crop> draw_random_erasing(int width, int height, const RandomErasingOptions& options,
                                        SampleRandom& random) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  check_interval({options.probability, options.probability}, 0, 1, "probability of random erasing");
  check_interval(options.scale, 0, 1, "area of random erasing");
  check_interval(options.ratio, std::numeric_limits<double>::min(), kLargest, "ratio of random erasing");
  if (random.uniform() >= options.probability) return std::nullopt;

  const double image_area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < kErasingAttempts; ++attempt) {
    const double area = image_area * uniform(options.scale, random);
    const double ratio = log_uniform(options.ratio, random);
    const double erased_height = std::nearbyint(std::sqrt(area * ratio));
    const double erased_width = std::nearbyint(std::sqrt(area / ratio));
    if (erased_height >= height || erased_width >= width) continue;
    Crop erased{.width = static_cast<int>(erased_width), .height = static_cast<int>(erased_height)};
    erased.y = random.integer(0, height - erased.height);
    erased.x = random.integer(0, width - erased.width);
    return erased;
  }
  return std::nullopt;
}

void erase(const PixelTarget& image, const Crop& area, const RandomErasingOptions& options, SampleRandom& random) {
  check_erased(image, area);
  for (int channel = 0; channel < image.channels; ++channel) {
    const float constant = options.constant[static_cast<std::size_t>(channel)];
    for (int y = area.y; y < area.y + area.height; ++y) {
      for (int x = area.x; x < area.x + area.width; ++x) {
        const bool drawn = options.value == ErasingValue::normal;
        store(drawn ? static_cast<float>(normal(random)) : constant, image.type, image.at(channel, y, x));
      }
    }
  }
}

}  // namespace libtrain::data
