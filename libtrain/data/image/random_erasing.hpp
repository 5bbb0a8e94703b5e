#pragma once

#include <array>
#include <optional>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/pixel_format.hpp>
#include <libtrain/data/image/random_draws.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

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
