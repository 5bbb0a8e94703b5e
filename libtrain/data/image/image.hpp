#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

/// An 8-bit image in memory: rows from the top, pixels from the left, channels interleaved (HWC).
struct Image {
  int width = 0;
  int height = 0;
  int channels = 3;  ///< 1: grey, 3: red, green, blue
  std::vector<std::uint8_t> pixels = {};

  std::size_t row_bytes() const { return static_cast<std::size_t>(width) * static_cast<std::size_t>(channels); }
  const std::uint8_t* row(int y) const { return pixels.data() + static_cast<std::size_t>(y) * row_bytes(); }
  std::uint8_t* row(int y) { return pixels.data() + static_cast<std::size_t>(y) * row_bytes(); }
};

/// A colour of red, green and blue; grey images take the first.
using FillColor = std::array<std::uint8_t, 3>;

/// A rectangle of an image in pixels, from its top left corner.
struct Crop {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;

  bool operator==(const Crop&) const = default;
};

/// Whether the rectangle, which may be empty, is inside an image of this size.
constexpr bool lies_inside(const Crop& crop, std::int64_t width, std::int64_t height) {
  return crop.x >= 0 && crop.y >= 0 && crop.width >= 0 && crop.height >= 0 &&
         crop.x + std::int64_t{crop.width} <= width && crop.y + std::int64_t{crop.height} <= height;
}

/// The type of a finished image's elements; float16 is IEEE 754's binary16.
enum class PixelType { uint8, float16, bfloat16, float32 };

/// The order of a batch's dimensions: N images, C channels, H rows, W columns.
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

/// A byte v of channel c becomes (v / 255 - mean[c]) / standard_deviation[c]; grey images use the first channel's.
struct Normalization {
  std::array<float, 3> mean = {0, 0, 0};
  std::array<float, 3> standard_deviation = {1, 1, 1};
};

/// The normalization of torchvision's pretrained models: mean and standard deviation of ImageNet's training set.
inline constexpr Normalization kImageNetNormalization{.mean = {0.485f, 0.456f, 0.406f},
                                                      .standard_deviation = {0.229f, 0.224f, 0.225f}};

/// A view of a finished image in memory that it does not own, such as one slot of a batch.
struct PixelTarget {
  void* pixels = nullptr;  ///< the first element, aligned for its type
  int width = 0;
  int height = 0;
  int channels = 3;
  PixelType type = PixelType::float32;
  Layout layout = Layout::nchw;
  std::ptrdiff_t row_stride = 0;  ///< elements from a row to the next; 0: rows are contiguous

  std::ptrdiff_t elements_per_row() const {
    if (row_stride != 0) return row_stride;
    return layout == Layout::nhwc ? std::ptrdiff_t{width} * channels : std::ptrdiff_t{width};
  }

  /// The address of the value of a channel at column x of row y.
  void* at(int channel, int y, int x) const {
    const std::ptrdiff_t within =
        layout == Layout::nhwc ? std::ptrdiff_t{x} * channels + channel : elements_per_row() * height * channel + x;
    const auto bytes = static_cast<std::ptrdiff_t>(element_bytes(type));
    return static_cast<std::byte*>(pixels) + (elements_per_row() * y + within) * bytes;
  }
};

/// A view of an 8-bit image, or of a rectangle of one; channels interleaved (HWC).
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  int width = 0;
  int height = 0;
  int channels = 3;               ///< 1: grey, 3: red, green, blue
  std::ptrdiff_t row_stride = 0;  ///< bytes from a row to the next

  const std::uint8_t* row(int y) const { return pixels + static_cast<std::ptrdiff_t>(y) * row_stride; }
};

namespace detail {

/// Throws UsageError unless the image has 1 or 3 channels, at least one pixel, and bytes for all pixels.
inline void require_valid_image(const Image& image) {
  if (image.channels != 1 && image.channels != 3) {
    throw UsageError(text("An image has ", image.channels, " channels; it must have 1 or 3."));
  }
  if (image.width < 1 || image.height < 1 ||
      image.pixels.size() != image.row_bytes() * static_cast<std::size_t>(image.height)) {
    throw UsageError(text("An image of ", image.width, " x ", image.height, " pixels and ", image.channels,
                          " channels has ", image.pixels.size(),
                          " bytes; it must have width * height * channels of them, and at least one pixel."));
  }
}

}  // namespace detail

/// The whole image. Throws UsageError for an empty image, and for an image whose size does not match its bytes.
inline ImageView view(const Image& image) {
  detail::require_valid_image(image);
  return {.pixels = image.pixels.data(),
          .width = image.width,
          .height = image.height,
          .channels = image.channels,
          .row_stride = static_cast<std::ptrdiff_t>(image.row_bytes())};
}

/// The whole image as a target of uint8.
inline PixelTarget target_of(Image& image) {
  return {.pixels = image.pixels.data(),
          .width = image.width,
          .height = image.height,
          .channels = image.channels,
          .type = PixelType::uint8,
          .layout = Layout::nhwc};
}

/// A rectangle of the image; operations on the view do not see the pixels around it. Throws UsageError if it is empty
/// or not inside the image.
inline ImageView view(const Image& image, const Crop& crop) {
  ImageView result = view(image);
  if (crop.width < 1 || crop.height < 1 || !lies_inside(crop, image.width, image.height)) {
    throw UsageError(text("A crop of ", crop.width, " x ", crop.height, " pixels at (", crop.x, ", ", crop.y,
                          ") must lie inside its image of ", image.width, " x ", image.height, "."));
  }
  result.pixels = result.row(crop.y) + static_cast<std::ptrdiff_t>(crop.x) * image.channels;
  result.width = crop.width;
  result.height = crop.height;
  return result;
}

}  // namespace libtrain::data
