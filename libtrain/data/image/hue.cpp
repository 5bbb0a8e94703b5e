// By way of HSV in bytes, as Pillow's Convert.c does it: with its types, its roundings and its clipping.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/color.hpp>
#include <libtrain/data/image/image_view.hpp>

namespace libtrain::data {

namespace {

struct Hsv {
  std::uint8_t hue = 0;
  std::uint8_t saturation = 0;
  std::uint8_t value = 0;
};

std::uint8_t byte(int value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0, 255));
}

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
  return {.hue = byte(static_cast<int>(hue * 255.0)),
          .saturation = byte(static_cast<int>(saturation * 255.0)),
          .value = byte(largest)};
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
  const std::uint8_t p = byte(static_cast<int>(std::round(v * (1.0 - saturation))));
  const std::uint8_t q = byte(static_cast<int>(std::round(v * (1.0 - part))));
  const std::uint8_t t = byte(static_cast<int>(std::round(v * (1.0 - saturation * (1.0 - fraction)))));
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

void adjust_hue(Image& image, double turns) {
  detail::require_picture(image);
  if (!(turns >= -0.5 && turns <= 0.5)) {
    throw UsageError(text("A hue was to be turned by ", turns, " of the colour circle; it must be from -0.5 to 0.5."));
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

}  // namespace libtrain::data
