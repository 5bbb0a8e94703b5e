#pragma once

#include <array>
#include <optional>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

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

}  // namespace libtrain::data
