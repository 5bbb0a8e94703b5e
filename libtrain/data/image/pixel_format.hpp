#pragma once

#include <array>
#include <cstddef>

namespace libtrain::data {

/// How a number of a finished picture is stored; float16 is IEEE 754's binary16.
enum class PixelType { uint8, float16, bfloat16, float32 };

/// The order of a batch's dimensions: N pictures, H rows, W columns, C channels.
enum class Layout { nhwc, nchw };

constexpr std::size_t element_bytes(PixelType type) {
  switch (type) {
    case PixelType::uint8:
      return 1;
    case PixelType::float16:
    case PixelType::bfloat16:
      return 2;
    case PixelType::float32:
      break;
  }
  return 4;
}

/// A byte v of channel c becomes (v / 255 - mean[c]) / standard_deviation[c]; grey pictures use the first channel's.
struct Normalization {
  std::array<float, 3> mean = {0, 0, 0};
  std::array<float, 3> standard_deviation = {1, 1, 1};
};

/// Of red, green and blue over ImageNet's training set, as torchvision's pretrained models take them.
inline constexpr Normalization kImageNetNormalization{.mean = {0.485f, 0.456f, 0.406f},
                                                      .standard_deviation = {0.229f, 0.224f, 0.225f}};

/// A finished picture in memory that belongs to somebody else, such as one slot of a batch.
struct PixelTarget {
  void* pixels = nullptr;  ///< the first element, aligned for its type
  int width = 0;
  int height = 0;
  int channels = 3;
  PixelType type = PixelType::float32;
  Layout layout = Layout::nchw;
  std::ptrdiff_t row_stride = 0;      ///< elements from a row to the next; 0: rows lie end to end
  std::ptrdiff_t channel_stride = 0;  ///< NCHW: elements from a channel to the next; 0: channels lie end to end

  std::ptrdiff_t elements_per_row() const {
    if (row_stride != 0) return row_stride;
    return layout == Layout::nhwc ? std::ptrdiff_t{width} * channels : std::ptrdiff_t{width};
  }

  std::ptrdiff_t elements_per_channel() const {
    return channel_stride != 0 ? channel_stride : elements_per_row() * height;
  }

  /// Where the value of a channel at column x of row y is stored.
  void* at(int channel, int y, int x) const {
    const std::ptrdiff_t within =
        layout == Layout::nhwc ? std::ptrdiff_t{x} * channels + channel : elements_per_channel() * channel + x;
    const auto bytes = static_cast<std::ptrdiff_t>(element_bytes(type));
    return static_cast<std::byte*>(pixels) + (elements_per_row() * y + within) * bytes;
  }
};

}  // namespace libtrain::data
