// Uses the types, roundings and clipping of Pillow, including its arithmetic in float, for bit-identical results.

#include <libtrain/data/image/detail/color.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/image.hpp>

namespace libtrain::data::detail {

namespace {

using ColorTable = std::array<std::uint8_t, 256>;

void look_up(Image& image, const ColorTable& table) {
  for (auto& byte : image.pixels) byte = table[byte];
}

void check(const Image& image, double factor, const char* what) {
  require_valid_image(image);
  if (!std::isfinite(factor) || factor < 0) {
    throw UsageError(text("The factor of ", what, " is ", factor, "; it must be finite and not negative."));
  }
}

std::uint8_t blended(int degenerate, int original, float factor) {
  const float value = static_cast<float>(degenerate) + factor * static_cast<float>(original - degenerate);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0f, 255.0f));
}

std::uint8_t clipped(int value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0, 255));
}

std::uint8_t grey(const std::uint8_t* pixel) {
  return luma(pixel[0], pixel[1], pixel[2]);
}

template <typename Change>
ColorTable table_of(const Change& change) {
  ColorTable table;
  for (int value = 0; value < 256; ++value) table[static_cast<std::size_t>(value)] = change(value);
  return table;
}

ColorTable blending_with(int degenerate, double factor) {
  return table_of([=](int value) { return blended(degenerate, value, static_cast<float>(factor)); });
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

// The weighted sum of three neighbours, `step` bytes apart.
inline float weighted(const std::uint8_t* middle, std::ptrdiff_t step, float side_weight, float middle_weight) {
  return static_cast<float>(middle[-step]) * side_weight + static_cast<float>(middle[0]) * middle_weight +
         static_cast<float>(middle[step]) * side_weight;
}

using Histogram = std::array<std::uint64_t, 256>;

Histogram histogram_of(const Image& image, std::size_t channel) {
  Histogram counts{};
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t i = channel; i < image.pixels.size(); i += channels) ++counts[image.pixels[i]];
  return counts;
}

ColorTable identity() {
  return table_of([](int value) { return static_cast<std::uint8_t>(value); });
}

std::size_t smallest(const Histogram& counts) {
  std::size_t value = 0;
  while (counts[value] == 0) ++value;
  return value;
}

std::size_t largest(const Histogram& counts) {
  std::size_t value = counts.size() - 1;
  while (counts[value] == 0) --value;
  return value;
}

ColorTable stretching(const Histogram& counts) {
  const auto low = static_cast<int>(smallest(counts));
  const auto high = static_cast<int>(largest(counts));
  if (high <= low) return identity();
  const double scale = 255.0 / (high - low);
  const double offset = -low * scale;
  return table_of([=](int value) { return clipped(static_cast<int>(value * scale + offset)); });
}

ColorTable equalizing(const Histogram& counts) {
  std::uint64_t total = 0;
  for (const auto count : counts) total += count;
  // The number of pixels per result, without those of the largest value.
  const std::uint64_t step = (total - counts[largest(counts)]) / 255;
  if (step == 0) return identity();
  std::uint64_t below = step / 2;
  return table_of([&](int value) {
    const auto result = static_cast<std::uint8_t>(std::min<std::uint64_t>(below / step, 255));
    below += counts[static_cast<std::size_t>(value)];
    return result;
  });
}

template <typename MakeTable>
void apply_by_channel(Image& image, const MakeTable& make_table) {
  require_valid_image(image);
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const ColorTable table = make_table(histogram_of(image, channel));
    for (std::size_t i = channel; i < image.pixels.size(); i += channels) image.pixels[i] = table[image.pixels[i]];
  }
}

struct Hsv {
  std::uint8_t hue = 0;
  std::uint8_t saturation = 0;
  std::uint8_t value = 0;
};

Hsv to_hsv(const std::uint8_t* pixel) {
  const int red = pixel[0];
  const int green = pixel[1];
  const int blue = pixel[2];
  const int largest = std::max({red, green, blue});
  const int smallest = std::min({red, green, blue});
  if (smallest == largest) return {.value = pixel[0]};

  const auto range = static_cast<float>(largest - smallest);
  const float saturation = range / static_cast<float>(largest);
  const float red_distance = static_cast<float>(largest - red) / range;
  const float green_distance = static_cast<float>(largest - green) / range;
  const float blue_distance = static_cast<float>(largest - blue) / range;
  float hue = 0;
  if (red == largest) {
    hue = blue_distance - green_distance;
  } else if (green == largest) {
    hue = static_cast<float>(2.0 + red_distance - blue_distance);
  } else {
    hue = static_cast<float>(4.0 + green_distance - red_distance);
  }
  const double turns = hue / 6.0 + 1.0;
  hue = static_cast<float>(turns >= 1.0 ? turns - 1.0 : turns);
  return {.hue = clipped(static_cast<int>(hue * 255.0)),
          .saturation = clipped(static_cast<int>(saturation * 255.0)),
          .value = clipped(largest)};
}

void set(std::uint8_t* pixel, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  pixel[0] = red;
  pixel[1] = green;
  pixel[2] = blue;
}

void from_hsv(const Hsv& color, std::uint8_t* pixel) {
  const std::uint8_t v = color.value;
  if (color.saturation == 0) return set(pixel, v, v, v);
  const double position = color.hue * 6.0 / 255.0;
  const int sextant = static_cast<int>(position);
  const auto fraction = static_cast<float>(position - static_cast<float>(sextant));
  const auto saturation = static_cast<float>(color.saturation / 255.0);
  const float part = saturation * fraction;
  const std::uint8_t p = clipped(static_cast<int>(std::round(v * (1.0 - saturation))));
  const std::uint8_t q = clipped(static_cast<int>(std::round(v * (1.0 - part))));
  const std::uint8_t t = clipped(static_cast<int>(std::round(v * (1.0 - saturation * (1.0 - fraction)))));
  switch (sextant % 6) {
    case 0:
      return set(pixel, v, t, p);
    case 1:
      return set(pixel, q, v, p);
    case 2:
      return set(pixel, p, v, t);
    case 3:
      return set(pixel, p, q, v);
    case 4:
      return set(pixel, t, p, v);
    default:
      return set(pixel, v, p, q);
  }
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  check(image, factor, "brightness");
  look_up(image, blending_with(0, factor));
}

void adjust_contrast(Image& image, double factor) {
  check(image, factor, "contrast");
  look_up(image, blending_with(mean_grey(image), factor));
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

void posterize(Image& image, int bits) {
  require_valid_image(image);
  if (bits < 1 || bits > 8) throw UsageError(text("posterize was given ", bits, " bits; it must be 1 to 8."));
  const auto kept = static_cast<std::uint8_t>(0xFF00 >> bits);
  for (auto& byte : image.pixels) byte = static_cast<std::uint8_t>(byte & kept);
}

void solarize(Image& image, double threshold) {
  require_valid_image(image);
  look_up(image,
          table_of([=](int value) { return static_cast<std::uint8_t>(value < threshold ? value : 255 - value); }));
}

void autocontrast(Image& image) {
  apply_by_channel(image, stretching);
}

void equalize(Image& image) {
  apply_by_channel(image, equalizing);
}

void adjust_hue(Image& image, double turns) {
  require_valid_image(image);
  if (!(turns >= -0.5 && turns <= 0.5)) {
    throw UsageError(text("The hue shift is ", turns, "; it must be from -0.5 to 0.5."));
  }
  if (image.channels == 1) return;
  const auto shift = static_cast<int>(turns * 255.0);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    std::uint8_t* pixel = &image.pixels[i];
    Hsv color = to_hsv(pixel);
    color.hue = static_cast<std::uint8_t>(color.hue + shift);
    from_hsv(color, pixel);
  }
}

}  // namespace libtrain::data::detail
