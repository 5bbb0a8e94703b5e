#include <libtrain/data/image/decode_options.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/detail/color.hpp>

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
                              options.maximum_pixels, ". Raise DecodeOptions::maximum_pixels if you trust the file."));
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
  // Replaced rather than grown, which would copy the previous image.
  if (image.pixels.capacity() < size) image.pixels = {};
  image.pixels.resize(size);
}

void fail_image(const char* format, const std::string& name, std::uint64_t offset,
                const std::string& expected_and_found) {
  throw EnvironmentError(text(format, " '", name, "', byte offset ", offset, ": ", expected_and_found, "."));
}

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
