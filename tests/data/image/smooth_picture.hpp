#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <libtrain/data/image/image.hpp>

namespace libtrain::test {

/// Waves of about 60 and 90 pixels, shifted from channel to channel, without noise, which a JPEG keeps well. A shift by
/// one pixel changes the values by 4 on average.
inline data::Image smooth_picture(int width, int height, int channels) {
  data::Image image{.width = width, .height = height, .channels = channels};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int channel = 0; channel < channels; ++channel) {
        const double value = 128 + 60 * std::sin(0.11 * x + 1.3 * channel) + 50 * std::cos(0.07 * y - 0.9 * channel);
        image.pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  return image;
}

/// The mean difference of the bytes of two images of one size.
inline double mean_difference(const data::Image& left, const data::Image& right) {
  double sum = 0;
  for (std::size_t i = 0; i < left.pixels.size(); ++i) sum += std::abs(left.pixels[i] - right.pixels[i]);
  return sum / static_cast<double>(left.pixels.size());
}

}  // namespace libtrain::test
