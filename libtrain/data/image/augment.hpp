#pragma once

#include <vector>

#include <libtrain/data/image/affine.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// The operations of TrivialAugmentWide and RandAugment, in torchvision's order.
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
struct AugmentStep {
  AugmentOperation operation = AugmentOperation::identity;
  double magnitude = 0;
};

// Magnitudes are exact fractions of torchvision's ranges; torchvision's are torch.linspace's, which differ in the last
// bits of float32 from processor to processor.

/// One operation, all equally likely, with one of 31 magnitudes, equally likely, and either sign where it has one:
/// TrivialAugmentWide (Müller and Hutter, TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation, ICCV
/// 2021).
AugmentStep draw_trivial_augment(SampleRandom& random);

/// torchvision's defaults.
struct RandAugmentOptions {
  int operations = 2;  ///< of a picture, one after the other
  int magnitude = 9;   ///< of each: 0 to `magnitudes` - 1
  int magnitudes = 31;
};

/// Operations, each of all equally likely, of one magnitude, and of either sign where they have one: RandAugment (Cubuk
/// et al., RandAugment: Practical automated data augmentation with a reduced search space, arXiv:1909.13719). The size
/// is that of the picture, by which it is translated. Throws UsageError for fewer than 0 operations, fewer than 2
/// magnitudes, and a magnitude that is not one of them.
std::vector<AugmentStep> draw_rand_augment(const RandAugmentOptions& options, int width, int height,
                                           SampleRandom& random);

/// Changes the picture in place, with `fill` where it leaves pixels open. Places are nearest neighbours, translations
/// whole pixels, rounded towards zero. Throws UsageError as the functions of color.hpp and affine.hpp do.
void apply_augment(const AugmentStep& step, Image& image, const FillColor& fill = {0, 0, 0});

}  // namespace libtrain::data
