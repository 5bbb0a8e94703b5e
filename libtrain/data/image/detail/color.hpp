#pragma once

#include <cstdint>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data::detail {

// Changes of colour in place, on 8-bit pictures, bit by bit as torchvision's functional transforms on PIL images: the
// formulas are those of Pillow's ImageEnhance and ImageOps (and of Blend.c, Convert.c and Filter.c below them). Grey
// pictures are those of mode "L". All throw UsageError for an empty picture or one whose size does not fit its bytes;
// the adjust_ functions as well for a factor that is negative or not finite.

// Each blends a degenerate picture with the original: factor 0 gives the degenerate one, 1 the original, more than 1
// goes beyond it; results are cut off at 0 and 255 and rounded down.

/// The degenerate picture is black.
void adjust_brightness(Image& image, double factor);

/// The degenerate picture is the mean, rounded, of the original's grey values.
void adjust_contrast(Image& image, double factor);

/// The degenerate picture is the original in grey. Grey pictures stay as they are.
void adjust_saturation(Image& image, double factor);

/// The degenerate picture is the original smoothed by 1 1 1, 1 5 1, 1 1 1, divided by 13, except on its border.
void adjust_sharpness(Image& image, double factor);

/// Turns the hue by `turns`, from -0.5 to 0.5, of the colour circle in steps of 1/255, by way of 8-bit HSV. Grey
/// pictures stay as they are. Throws UsageError for other `turns`.
void adjust_hue(Image& image, double turns);

// Tables of 256 values.

/// 255 - v.
void invert(Image& image);

/// Keeps the upper `bits` bits, 1 to 8, of each byte. Throws UsageError for other numbers.
void posterize(Image& image, int bits);

/// Inverts the bytes that are not below `threshold`.
void solarize(Image& image, double threshold);

/// Spreads each channel from its smallest to its largest value over 0 to 255.
void autocontrast(Image& image);

/// Spreads each channel so that its histogram becomes as even as it can.
void equalize(Image& image);

/// How bright a colour is: ITU-R 601-2 in 16-bit fixed point, rounded, as Pillow's L24 (Convert.c) has it.
constexpr std::uint8_t luma(unsigned red, unsigned green, unsigned blue) {
  return static_cast<std::uint8_t>((red * 19595U + green * 38470U + blue * 7471U + 0x8000U) >> 16);
}

}  // namespace libtrain::data::detail
