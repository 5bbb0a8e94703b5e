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

/// How far to go, as torchvision's ColorJitter takes it: factors are uniform from max(0, 1 - x) to 1 + x, the turn of
/// the hue from -x to x of the colour circle. A change of which x is 0 is left out.
struct ColorJitterOptions {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  ///< at most 0.5
};

enum class ColorChange { brightness, contrast, saturation, hue };

/// What one draw says: the changes in the order of their application, and how far each goes.
struct ColorJitter {
  std::array<ColorChange, 4> order = {ColorChange::brightness, ColorChange::contrast, ColorChange::saturation,
                                      ColorChange::hue};
  std::optional<double> brightness = std::nullopt;  ///< a factor, as of adjust_brightness; nothing: left out
  std::optional<double> contrast = std::nullopt;
  std::optional<double> saturation = std::nullopt;
  std::optional<double> hue = std::nullopt;
};

/// All orders are equally likely. Throws UsageError for options that are negative, not finite, or a hue above 0.5.
ColorJitter draw_color_jitter(const ColorJitterOptions& options, SampleRandom& random);

/// Changes the picture in place. Throws UsageError as the functions of color.hpp do.
void apply_color_jitter(const ColorJitter& jitter, Image& image);

enum class ErasingValue {
  constant,  ///< one value per channel
  normal,    ///< every element drawn from a normal distribution with mean 0 and variance 1
};

/// torchvision's defaults.
struct RandomErasingOptions {
  double probability = 0.5;
  Interval scale = {0.02, 0.33};  ///< of the erased area, as a share of the picture's
  Interval ratio = {0.3, 3.3};    ///< of the erased rectangle's height to its width
  ErasingValue value = ErasingValue::constant;
  std::array<float, 3> constant = {0, 0, 0};  ///< by channel, as normalised values
};

/// The rectangle that torchvision's RandomErasing (Zhong et al., Random Erasing Data Augmentation, arXiv:1708.04896)
/// draws; nothing where the picture is to be left alone: with 1 - probability, or where none of ten draws is both
/// narrower and lower than the picture. Sides are rounded half to even and may be 0.
/// Throws UsageError for a probability or a scale outside [0, 1], or a ratio that is not positive.
std::optional<Crop> draw_random_erasing(int width, int height, const RandomErasingOptions& options,
                                        SampleRandom& random);

/// Overwrites the rectangle of a normalised picture. Only ErasingValue::normal draws from `random`. Throws UsageError
/// for uint8, whose bytes are not normalised, and for a rectangle that reaches out of the picture.
void erase(const PixelTarget& picture, const Crop& area, const RandomErasingOptions& options, SampleRandom& random);

}  // namespace libtrain::data
