#include <libtrain/data/image/augment.hpp>

#include <cmath>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/color.hpp>

namespace libtrain::data {

namespace {

constexpr int kTrivialMagnitudes = 31;

// The range of an operation's magnitudes, from the first to the last.
struct Range {
  double first = 0;
  double last = 0;
  bool either_sign = false;
};

// What the operations go to at most. They begin at doing nothing.
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

Range range_of(AugmentOperation operation, const Extents& extents) {
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

// The magnitude `number` of `count`, with a sign drawn where there is one.
AugmentStep draw_step(AugmentOperation operation, const Range& range, int number, int count, SampleRandom& random) {
  double magnitude = range.first + (range.last - range.first) * number / (count - 1);
  if (operation == AugmentOperation::posterize) magnitude = std::nearbyint(magnitude);
  if (range.either_sign && random.integer(0, 1) == 1) magnitude = -magnitude;
  return {.operation = operation, .magnitude = magnitude};
}

}  // namespace

AugmentStep draw_trivial_augment(SampleRandom& random) {
  const AugmentOperation operation = draw_operation(random);
  const Range range = range_of(operation, kTrivialExtents);
  if (range.first == range.last) return {.operation = operation};
  const int number = random.integer(0, kTrivialMagnitudes - 1);
  return draw_step(operation, range, number, kTrivialMagnitudes, random);
}

std::vector<AugmentStep> draw_rand_augment(const RandAugmentOptions& options, int width, int height,
                                           SampleRandom& random) {
  if (options.operations < 0 || options.magnitudes < 2 || options.magnitude < 0 ||
      options.magnitude >= options.magnitudes) {
    throw UsageError(text("RandAugmentOptions asks for ", options.operations, " operations of magnitude ",
                          options.magnitude, " among ", options.magnitudes,
                          ", expected 0 or more, of a magnitude from 0 to magnitudes - 1, of which there are 2 or "
                          "more."));
  }
  std::vector<AugmentStep> steps;
  for (int i = 0; i < options.operations; ++i) {
    const AugmentOperation operation = draw_operation(random);
    const Range range = range_of(operation, rand_extents(width, height));
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
      return adjust_brightness(image, 1 + magnitude);
    case AugmentOperation::color:
      return adjust_saturation(image, 1 + magnitude);
    case AugmentOperation::contrast:
      return adjust_contrast(image, 1 + magnitude);
    case AugmentOperation::sharpness:
      return adjust_sharpness(image, 1 + magnitude);
    case AugmentOperation::posterize:
      return posterize(image, static_cast<int>(magnitude));
    case AugmentOperation::solarize:
      return solarize(image, magnitude);
    case AugmentOperation::autocontrast:
      return autocontrast(image);
    case AugmentOperation::equalize:
      return equalize(image);
  }
}

}  // namespace libtrain::data
