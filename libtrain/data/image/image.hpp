#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace libtrain::data {

/// An 8-bit picture in memory: rows from the top, pixels from the left, channels interleaved (HWC).
struct Image {
  int width = 0;
  int height = 0;
  int channels = 3;  ///< 1: grey, 3: red, green, blue
  std::vector<std::uint8_t> pixels = {};

  std::size_t row_bytes() const { return static_cast<std::size_t>(width) * static_cast<std::size_t>(channels); }
  const std::uint8_t* row(int y) const { return pixels.data() + static_cast<std::size_t>(y) * row_bytes(); }
  std::uint8_t* row(int y) { return pixels.data() + static_cast<std::size_t>(y) * row_bytes(); }
};

/// A colour of red, green and blue; grey pictures take the first.
using FillColor = std::array<std::uint8_t, 3>;

/// A rectangle of a picture in pixels, from its top left corner.
struct Crop {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;

  bool operator==(const Crop&) const = default;
};

/// Whether no part of the rectangle, which may be empty, is outside of a picture of this size.
constexpr bool lies_inside(const Crop& crop, std::int64_t width, std::int64_t height) {
  return crop.x >= 0 && crop.y >= 0 && crop.width >= 0 && crop.height >= 0 &&
         crop.x + std::int64_t{crop.width} <= width && crop.y + std::int64_t{crop.height} <= height;
}

}  // namespace libtrain::data
