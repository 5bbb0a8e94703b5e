#pragma once

#include <cstdint>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data::detail {

// Changes of colour in place, on 8-bit images, bit-identical to torchvision's functional transforms on PIL images: the
// formulas are those of Pillow's ImageEnhance and ImageOps (and of Blend.c, Convert.c and Filter.c). Grey images are
// Pillow's mode "L". All throw UsageError for an empty image, and for an image whose size does not match its bytes; the
// adjust_ functions also for a factor that is negative or not finite.

// Each of these blends a degenerate image with the original: factor 0 gives the degenerate image, 1 the original, and
// more than 1 extrapolates. Results are clipped to 0 to 255 and rounded down.

/// The degenerate image is black.
void adjust_brightness(Image& image, double factor);

/// The degenerate image is the rounded mean of the original's grey values.
void adjust_contrast(Image& image, double factor);

/// The degenerate image is the original in grey. Grey images are not changed.
void adjust_saturation(Image& image, double factor);

/// The degenerate image is the original smoothed by 1 1 1, 1 5 1, 1 1 1, divided by 13, except for its border.
void adjust_sharpness(Image& image, double factor);

/// Shifts the hue by `turns` of the colour circle, from -0.5 to 0.5, in steps of 1/255, in 8-bit HSV. Grey images are
/// not changed. Throws UsageError for other `turns`.
void adjust_hue(Image& image, double turns);

// Each byte is looked up in a table of 256 values.

/// Keeps the upper `bits` bits, 1 to 8, of each byte. Throws UsageError for other numbers.
void posterize(Image& image, int bits);

/// Inverts the bytes that are not below `threshold`.
void solarize(Image& image, double threshold);

/// Stretches each channel from its smallest and largest value to 0 and 255.
void autocontrast(Image& image);

/// Equalizes the histogram of each channel.
void equalize(Image& image);

/// The luma of a colour: ITU-R 601-2 in 16-bit fixed point, rounded, as Pillow's L24 (Convert.c).
constexpr std::uint8_t luma(unsigned red, unsigned green, unsigned blue) {
  return static_cast<std::uint8_t>((red * 19595U + green * 38470U + blue * 7471U + 0x8000U) >> 16);
}

}  // namespace libtrain::data::detail
