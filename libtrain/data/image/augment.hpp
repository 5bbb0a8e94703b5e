#pragma once

#include <array>
#include <optional>
#include <vector>

#include <libtrain/data/image/affine.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/random_draws.hpp>
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

/// An operation and its magnitude: the amount of a shear, pixels, degrees, a factor minus 1, bits or a threshold; 0 for
/// operations without a magnitude.
struct AugmentStep {
  AugmentOperation operation = AugmentOperation::identity;
  double magnitude = 0;
};

// Magnitudes are exact fractions of torchvision's ranges. torchvision's own come from torch.linspace, whose last bits
// of float32 differ between processors.

/// One operation with one of 31 magnitudes and, if it has one, a sign, all with equal probability: TrivialAugmentWide
/// (Müller and Hutter, TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation, ICCV 2021).
AugmentStep draw_trivial_augment(SampleRandom& random);

/// torchvision's defaults.
struct RandAugmentOptions {
  int operations = 2;  ///< number of operations per image
  int magnitude = 9;   ///< of each operation: 0 to `magnitudes` - 1
  int magnitudes = 31;
};

/// Operations of one magnitude, drawn with equal probability, as are their signs: RandAugment (Cubuk et al.,
/// RandAugment: Practical automated data augmentation with a reduced search space, arXiv:1909.13719). Translations
/// depend on the size of the image. Throws UsageError for fewer than 0 operations, fewer than 2 magnitudes, and a
/// magnitude out of range.
std::vector<AugmentStep> draw_rand_augment(const RandAugmentOptions& options, int width, int height,
                                           SampleRandom& random);

/// Changes the image in place; `fill` is the colour of pixels from outside of the source. Geometric operations use
/// nearest neighbours; translations are whole pixels, rounded towards zero. Throws UsageError as the functions of
/// color.hpp and affine.hpp do.
void apply_augment(const AugmentStep& step, Image& image, const FillColor& fill = {0, 0, 0});

/// The parameters of torchvision's ColorJitter: factors are uniform from max(0, 1 - x) to 1 + x, the shift of the hue
/// from -x to x of the colour circle. If x is 0, the change is left out.
struct ColorJitterOptions {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  ///< at most 0.5
};

enum class ColorChange { brightness, contrast, saturation, hue };

/// One draw: the changes in the order of their application, and their amounts.
struct ColorJitter {
  std::array<ColorChange, 4> order = {ColorChange::brightness, ColorChange::contrast, ColorChange::saturation,
                                      ColorChange::hue};
  std::optional<double> brightness = std::nullopt;  ///< the factor of adjust_brightness; std::nullopt: left out
  std::optional<double> contrast = std::nullopt;
  std::optional<double> saturation = std::nullopt;
  std::optional<double> hue = std::nullopt;
};

/// All orders have equal probability. Throws UsageError for options that are negative or not finite, and a hue above
/// 0.5.
ColorJitter draw_color_jitter(const ColorJitterOptions& options, SampleRandom& random);

/// Changes the image in place. Throws UsageError as the functions of color.hpp do.
void apply_color_jitter(const ColorJitter& jitter, Image& image);

enum class ErasingValue {
  constant,  ///< one value per channel
  normal,    ///< every element drawn from a normal distribution with mean 0 and variance 1
};

/// torchvision's defaults.
struct RandomErasingOptions {
  double probability = 0.5;
  Interval scale = {0.02, 0.33};  ///< erased area as a fraction of the image's
  Interval ratio = {0.3, 3.3};    ///< height divided by width of the erased rectangle
  ErasingValue value = ErasingValue::constant;
  std::array<float, 3> constant = {0, 0, 0};  ///< by channel, as normalised values
};

/// The rectangle that torchvision's RandomErasing (Zhong et al., Random Erasing Data Augmentation, arXiv:1708.04896)
/// draws; std::nullopt if nothing is erased: with 1 - probability, or if none of ten draws is both narrower and lower
/// than the image. Sides are rounded half to even and may be 0. Throws UsageError for a probability or a scale outside
/// [0, 1], or a ratio that is not positive.
std::optional<Crop> draw_random_erasing(int width, int height, const RandomErasingOptions& options,
                                        SampleRandom& random);

/// Overwrites a rectangle of a normalised image. Only ErasingValue::normal draws from `random`. Throws UsageError for
/// uint8, which is not normalised, and for a rectangle that is not inside the image.
void erase(const PixelTarget& image, const Crop& area, const RandomErasingOptions& options, SampleRandom& random);

}  // namespace libtrain::data
