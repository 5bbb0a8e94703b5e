#include <libtrain/data/image/decode_options.hpp>

#include <cstddef>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

void check_options(const DecodeOptions& options) {
  if (options.channels != 1 && options.channels != 3) {
    throw UsageError(text("DecodeOptions::channels is ", options.channels, ", expected 1 (grey) or 3 (RGB)."));
  }
  const int scale = options.scale_denominator;
  if (scale != 1 && scale != 2 && scale != 4 && scale != 8) {
    throw UsageError(text("DecodeOptions::scale_denominator is ", scale, ", expected 1, 2, 4 or 8."));
  }
  if (options.maximum_warnings < 0) {
    throw UsageError(
        text("DecodeOptions::maximum_warnings is ", options.maximum_warnings, ", expected a number of at least 0."));
  }
}

void check_pixels(const char* format, const DecodeOptions& options, std::uint64_t width, std::uint64_t height) {
  // Both are below 2^31, so that the product fits.
  if (width * height <= options.maximum_pixels) return;
  throw EnvironmentError(text(format, " '", options.name, "' has ", width, " x ", height, " pixels, expected at most ",
                              options.maximum_pixels,
                              ": raise DecodeOptions::maximum_pixels if the file is to be trusted."));
}

Crop crop_of(const DecodeOptions& options, int width, int height) {
  if (!options.crop) return {.x = 0, .y = 0, .width = width, .height = height};
  const Crop& crop = *options.crop;
  if (crop.width > 0 && crop.height > 0 && lies_inside(crop, width, height)) return crop;
  throw UsageError(text("DecodeOptions::crop is ", crop.width, " x ", crop.height, " pixels at (", crop.x, ", ", crop.y,
                        "), expected a rectangle inside the ", width, " x ", height, " pixels of '", options.name,
                        "'."));
}

void shape(Image& image, int width, int height, int channels) {
  image.width = width;
  image.height = height;
  image.channels = channels;
  const std::size_t size = image.row_bytes() * static_cast<std::size_t>(height);
  // Made anew rather than grown, which would copy the picture before.
  if (image.pixels.capacity() < size) image.pixels = {};
  image.pixels.resize(size);
}

}  // namespace libtrain::data::detail
