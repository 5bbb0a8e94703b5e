#include <libtrain/data/image/pixel_conversion.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include <libtrain/data/image/luma.hpp>

namespace libtrain::data::detail {

namespace {

using Rgb = std::array<std::uint8_t, 3>;

// round(a * b / 255) for bytes.
unsigned multiply_bytes(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

Rgb rgb_of_inverted_cmyk(const std::uint8_t* pixel) {
  const unsigned light = pixel[3];
  Rgb rgb{};
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    const unsigned ink = 255U - pixel[i];
    rgb[i] = static_cast<std::uint8_t>(light - multiply_bytes(ink, light));
  }
  return rgb;
}

std::uint8_t clipped_grey16(const std::uint8_t* pixel) {
  std::uint16_t value = 0;
  std::memcpy(&value, pixel, sizeof value);
  return static_cast<std::uint8_t>(std::min<unsigned>(value, 255));
}

}  // namespace

void copy_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels) {
  std::memcpy(to, from, pixels);
}

void copy_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels) {
  std::memcpy(to, from, 3 * pixels);
}

void rgb_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels) {
  for (std::size_t i = 0; i < pixels; ++i) to[i] = luma(from[3 * i], from[3 * i + 1], from[3 * i + 2]);
}

void inverted_cmyk_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels) {
  for (std::size_t i = 0; i < pixels; ++i) {
    const Rgb rgb = rgb_of_inverted_cmyk(from + 4 * i);
    std::memcpy(to + 3 * i, rgb.data(), rgb.size());
  }
}

void inverted_cmyk_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels) {
  for (std::size_t i = 0; i < pixels; ++i) {
    const Rgb rgb = rgb_of_inverted_cmyk(from + 4 * i);
    to[i] = luma(rgb[0], rgb[1], rgb[2]);
  }
}

void clip_grey16_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels) {
  for (std::size_t i = 0; i < pixels; ++i) to[i] = clipped_grey16(from + 2 * i);
}

void clip_grey16_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels) {
  for (std::size_t i = 0; i < pixels; ++i) std::memset(to + 3 * i, clipped_grey16(from + 2 * i), 3);
}

}  // namespace libtrain::data::detail
