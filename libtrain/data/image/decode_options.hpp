#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// The default limit of pixels in an image: twice Pillow's Image.MAX_IMAGE_PIXELS = 2^30 / 12, rounded down, above
/// which Pillow raises DecompressionBombError.
inline constexpr std::uint64_t kMaxPixels = 178'956'970;

struct DecodeOptions {
  std::string name = "in memory";  ///< name of the file in messages
  int channels = 3;                ///< 3: red, green, blue; 1: grey, computed as Pillow's convert("L") does

  /// 1, 2, 4 or 8: decodes a JPEG at this fraction of its size, ceil(width / scale_denominator) pixels wide, by a
  /// smaller inverse transform, as Pillow's draft() does. JPEG only.
  int scale_denominator = 1;

  /// The rectangle to decode, in pixels of the scaled image; by default the whole image. The result equals that of
  /// decoding all and then cropping, but the file below the rectangle is not read, so that damage there goes unnoticed.
  std::optional<Crop> crop = {};

  /// Larger images are an error, before memory for their pixels is allocated.
  std::uint64_t maximum_pixels = kMaxPixels;

  /// The maximum number of damaged places in a JPEG. libjpeg fills them as well as it can; Pillow accepts any number.
  int maximum_warnings = 16;
};

namespace detail {

/// Throws UsageError for options that are invalid for every image.
void check_options(const DecodeOptions& options);

/// Throws EnvironmentError if the image has more pixels than the options allow.
void check_pixels(const char* format, const DecodeOptions& options, std::uint64_t width, std::uint64_t height);

/// The rectangle to decode of an image of this (scaled) size. Throws UsageError if it is not inside the image.
Crop crop_of(const DecodeOptions& options, int width, int height);

/// Sets the size of the image; pixels have unspecified values. Reuses the memory of the image.
void shape(Image& image, int width, int height, int channels);

/// `size` pixels at a scale of 1 / `denominator`.
inline int scaled(int size, int denominator) {
  return (size + denominator - 1) / denominator;
}

/// Throws EnvironmentError for the file `name` of `format`.
[[noreturn]] void fail_image(const char* format, const std::string& name, std::uint64_t offset,
                             const std::string& expected_and_found);

/// Converts a run of pixels, exactly as Pillow (Convert.c). `from` and `to` must not overlap.
using ConvertPixels = void (*)(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

void copy_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);
void copy_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

/// ITU-R 601-2 luma in 16-bit fixed point, rounded: Pillow's L24.
void rgb_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

/// Cyan, magenta, yellow and black as libjpeg returns them. Pillow treats them as inverted, as Adobe's programs write
/// them, with and without Adobe's marker; a colour is then (255 - K) - (255 - K) C / 255, rounded.
void inverted_cmyk_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);
void inverted_cmyk_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

/// 16-bit grey in native byte order. Pillow clips the values to 255.
void clip_grey16_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);
void clip_grey16_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

}  // namespace detail

}  // namespace libtrain::data
