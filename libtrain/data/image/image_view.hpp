#pragma once

#include <cstddef>
#include <cstdint>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/pixel_format.hpp>

namespace libtrain::data {

/// An 8-bit picture, or a rectangle of one, in memory that belongs to somebody else; channels interleaved (HWC).
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  int width = 0;
  int height = 0;
  int channels = 3;               ///< 1: grey, 3: red, green, blue
  std::ptrdiff_t row_stride = 0;  ///< bytes from a row to the next

  const std::uint8_t* row(int y) const { return pixels + static_cast<std::ptrdiff_t>(y) * row_stride; }
};

namespace detail {

/// Throws UsageError unless the picture has 1 or 3 channels, at least one pixel, and memory for all of them.
inline void require_picture(const Image& image) {
  if (image.channels != 1 && image.channels != 3) {
    throw UsageError(text("A picture has ", image.channels, " channels; it must have 1 or 3."));
  }
  if (image.width < 1 || image.height < 1 ||
      image.pixels.size() != image.row_bytes() * static_cast<std::size_t>(image.height)) {
    throw UsageError(text("A picture of ", image.width, " x ", image.height, " pixels and ", image.channels,
                          " channels has ", image.pixels.size(),
                          " bytes; it must have width * height * channels of them, and at least one pixel."));
  }
}

}  // namespace detail

/// The whole picture. Throws UsageError for an empty one, or one whose size does not fit its bytes.
inline ImageView view(const Image& image) {
  detail::require_picture(image);
  return {.pixels = image.pixels.data(),
          .width = image.width,
          .height = image.height,
          .channels = image.channels,
          .row_stride = static_cast<std::ptrdiff_t>(image.row_bytes())};
}

/// All of the picture, to be written as bytes.
inline PixelTarget target_of(Image& image) {
  return {.pixels = image.pixels.data(),
          .width = image.width,
          .height = image.height,
          .channels = image.channels,
          .type = PixelType::uint8,
          .layout = Layout::nhwc};
}

/// A rectangle of the picture. What works on it does not see the pixels around it. Throws UsageError where it is empty
/// or reaches out of the picture.
inline ImageView view(const Image& image, const Crop& crop) {
  ImageView result = view(image);
  if (crop.width < 1 || crop.height < 1 || !lies_inside(crop, image.width, image.height)) {
    throw UsageError(text("A crop of ", crop.width, " x ", crop.height, " pixels at (", crop.x, ", ", crop.y,
                          ") must lie inside its picture of ", image.width, " x ", image.height, "."));
  }
  result.pixels = result.row(crop.y) + static_cast<std::ptrdiff_t>(crop.x) * image.channels;
  result.width = crop.width;
  result.height = crop.height;
  return result;
}

}  // namespace libtrain::data
