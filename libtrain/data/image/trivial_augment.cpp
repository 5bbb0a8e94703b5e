#include <libtrain/data/image/trivial_augment.hpp>

#include <cmath>

#include <libtrain/data/image/color.hpp>

namespace libtrain::data {

namespace {

constexpr int kMagnitudes = 31;

// The range of an operation's magnitudes, from the first of kMagnitudes to the last.
struct Range {
  double first = 0;
  double last = 0;
  bool either_sign = false;
};

Range range_of(AugmentOperation operation) {
  switch (operation) {
    case AugmentOperation::shear_x:
    case AugmentOperation::shear_y:
    case AugmentOperation::brightness:
    case AugmentOperation::color:
    case AugmentOperation::contrast:
    case AugmentOperation::sharpness:
      return {0, 0.99, true};
    case AugmentOperation::translate_x:
    case AugmentOperation::translate_y:
      return {0, 32, true};
    case AugmentOperation::rotate:
      return {0, 135, true};
    case AugmentOperation::posterize:
      return {8, 2, false};
    case AugmentOperation::solarize:
      return {255, 0, false};
    case AugmentOperation::identity:
    case AugmentOperation::autocontrast:
    case AugmentOperation::equalize:
      break;
  }
  return {};
}

}  // namespace

TrivialAugment draw_trivial_augment(SampleRandom& random) {
  TrivialAugment augment{.operation = static_cast<AugmentOperation>(random.integer(0, kAugmentOperations - 1))};
  const Range range = range_of(augment.operation);
  if (range.first == range.last) return augment;
  const int step = random.integer(0, kMagnitudes - 1);
  augment.magnitude = range.first + (range.last - range.first) * step / (kMagnitudes - 1);
  if (augment.operation == AugmentOperation::posterize) augment.magnitude = std::nearbyint(augment.magnitude);
  if (range.either_sign && random.integer(0, 1) == 1) augment.magnitude = -augment.magnitude;
  return augment;
}

void apply_trivial_augment(const TrivialAugment& augment, Image& image, const FillColor& fill) {
  const double magnitude = augment.magnitude;
  switch (augment.operation) {
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
