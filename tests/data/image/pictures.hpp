#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>

#include <libtrain/data/image/image.hpp>

namespace libtrain::test {

/// Bytes without structure.
inline data::Image random_picture(int width, int height, int channels, unsigned seed = 1) {
  data::Image image{.width = width, .height = height, .channels = channels};
  image.pixels.resize(image.row_bytes() * static_cast<std::size_t>(height));
  std::mt19937 engine(seed);
  for (auto& byte : image.pixels) byte = static_cast<std::uint8_t>(engine() >> 24);
  return image;
}

inline data::Image constant_picture(int width, int height, int channels, std::uint8_t value) {
  data::Image image{.width = width, .height = height, .channels = channels};
  image.pixels.assign(image.row_bytes() * static_cast<std::size_t>(height), value);
  return image;
}

/// An image of one row.
inline data::Image row_of(int channels, std::initializer_list<std::uint8_t> bytes) {
  return {.width = static_cast<int>(bytes.size()) / channels, .height = 1, .channels = channels, .pixels = bytes};
}

inline std::uint8_t pixel(const data::Image& image, int x, int y, int channel = 0) {
  return image.row(y)[x * image.channels + channel];
}

/// Any rectangle inside an image, down to a single pixel.
inline data::Crop random_crop(std::mt19937& random, int width, int height) {
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned int>(limit)); };
  data::Crop crop{.x = below(width), .y = below(height)};
  crop.width = 1 + below(width - crop.x);
  crop.height = 1 + below(height - crop.y);
  return crop;
}

/// How messages name a rectangle.
inline std::string words_for(const data::Crop& crop) {
  return std::to_string(crop.width) + " x " + std::to_string(crop.height) + " at " + std::to_string(crop.x) + ", " +
         std::to_string(crop.y);
}

}  // namespace libtrain::test
