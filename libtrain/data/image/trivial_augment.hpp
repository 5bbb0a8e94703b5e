#pragma once

#include <libtrain/data/image/affine.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// The operations of TrivialAugmentWide, in torchvision's order.
enum class AugmentOperation {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  autocontrast,
  equalize,
};

inline constexpr int kAugmentOperations = 14;

/// An operation and how far it goes: the amount of a shear, pixels, degrees, a factor less 1, bits or a threshold; 0
/// for operations that know no more or less.
struct TrivialAugment {
  AugmentOperation operation = AugmentOperation::identity;
  double magnitude = 0;
};

/// One operation, all equally likely, with one of 31 magnitudes, equally likely, and either sign where it has one:
/// TrivialAugmentWide (Müller and Hutter, TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation, ICCV
/// 2021) with torchvision's ranges. Magnitudes are exact fractions of the range; torchvision's are torch.linspace's,
/// which differ in the last bits of float32 from processor to processor.
TrivialAugment draw_trivial_augment(SampleRandom& random);

/// Changes the picture in place, with `fill` where it leaves pixels open. Places are nearest neighbours, translations
/// whole pixels, rounded towards zero. Throws UsageError as the functions of color.hpp and affine.hpp do.
void apply_trivial_augment(const TrivialAugment& augment, Image& image, const FillColor& fill = {0, 0, 0});

}  // namespace libtrain::data
