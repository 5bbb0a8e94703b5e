// Arithmetic in float where Pillow's is: the bits have to agree.

#include <libtrain/data/image/color.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/color_table.hpp>
#include <libtrain/data/image/image_view.hpp>
#include <libtrain/data/image/luma.hpp>

namespace libtrain::data {

namespace {

using detail::ColorTable;

void check(const Image& image, double factor, const char* what) {
  detail::require_picture(image);
  if (!std::isfinite(factor) || factor < 0) {
    throw UsageError(text("The factor of ", what, " is ", factor, "; it must be finite and not negative."));
  }
}

std::uint8_t blended(int degenerate, int original, float factor) {
  const float value = static_cast<float>(degenerate) + factor * static_cast<float>(original - degenerate);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0f, 255.0f));
}

std::uint8_t grey(const std::uint8_t* pixel) {
  return detail::luma(pixel[0], pixel[1], pixel[2]);
}

ColorTable blending_with(int degenerate, double factor) {
  ColorTable table;
  for (std::size_t value = 0; value < table.size(); ++value) {
    table[value] = blended(degenerate, static_cast<int>(value), static_cast<float>(factor));
  }
  return table;
}

int mean_grey(const Image& image) {
  std::uint64_t sum = 0;
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t i = 0; i < image.pixels.size(); i += channels) {
    sum += channels == 1 ? image.pixels[i] : grey(&image.pixels[i]);
  }
  const auto pixels = static_cast<double>(image.pixels.size() / channels);
  return static_cast<int>(static_cast<double>(sum) / pixels + 0.5);
}

// Three neighbours, `step` bytes apart, of which the one in the middle has its own weight.
inline float weighted(const std::uint8_t* middle, std::ptrdiff_t step, float side_weight, float middle_weight) {
  return static_cast<float>(middle[-step]) * side_weight + static_cast<float>(middle[0]) * middle_weight +
         static_cast<float>(middle[step]) * side_weight;
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  check(image, factor, "brightness");
  detail::apply(image, blending_with(0, factor));
}

void adjust_contrast(Image& image, double factor) {
  check(image, factor, "contrast");
  detail::apply(image, blending_with(mean_grey(image), factor));
}

void adjust_saturation(Image& image, double factor) {
  check(image, factor, "saturation");
  if (image.channels == 1) return;
  const auto weight = static_cast<float>(factor);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    std::uint8_t* pixel = &image.pixels[i];
    const int degenerate = grey(pixel);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      pixel[channel] = blended(degenerate, pixel[channel], weight);
    }
  }
}

void adjust_sharpness(Image& image, double factor) {
  check(image, factor, "sharpness");
  if (image.width < 3 || image.height < 3) return;
  constexpr float kSide = 1.0f / 13.0f;
  constexpr float kMiddle = 5.0f / 13.0f;
  const auto weight = static_cast<float>(factor);
  const std::vector<std::uint8_t> original = image.pixels;
  const auto row_bytes = static_cast<std::ptrdiff_t>(image.row_bytes());
  const std::ptrdiff_t step = image.channels;
  for (std::ptrdiff_t y = 1; y < image.height - 1; ++y) {
    const std::uint8_t* from = original.data() + y * row_bytes;
    std::uint8_t* to = image.pixels.data() + y * row_bytes;
    for (std::ptrdiff_t i = step; i < row_bytes - step; ++i) {
      float sum = 0.5f;
      sum += weighted(from + i + row_bytes, step, kSide, kSide);
      sum += weighted(from + i, step, kSide, kMiddle);
      sum += weighted(from + i - row_bytes, step, kSide, kSide);
      to[i] = blended(static_cast<int>(std::clamp(sum, 0.0f, 255.0f)), from[i], weight);
    }
  }
}

}  // namespace libtrain::data
