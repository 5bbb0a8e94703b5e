#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// The most pixels of a picture unless the caller says otherwise: twice Pillow's Image.MAX_IMAGE_PIXELS = 2^30 / 12,
/// rounded down, beyond which Pillow raises DecompressionBombError.
inline constexpr std::uint64_t kMaxPixels = 178'956'970;

struct DecodeOptions {
  std::string name = "in memory";  ///< how messages name the file
  int channels = 3;                ///< 3: red, green, blue; 1: grey, computed as Pillow's convert("L") does

  /// 1, 2, 4 or 8: decodes a JPEG at this fraction of its size, ceil(width / scale_denominator) pixels wide, by a
  /// smaller inverse transform, as Pillow's draft() does. JPEG only.
  int scale_denominator = 1;

  /// The rectangle wanted, in pixels of the scaled picture; all of it where there is none. The result is what decoding
  /// all and then cropping gives, but what lies below the rectangle is not read, so that damage there goes unnoticed.
  std::optional<Crop> crop = {};

  /// Larger pictures are refused before anything is allocated for their pixels.
  std::uint64_t maximum_pixels = kMaxPixels;

  /// Places with damaged data that a JPEG may have. libjpeg fills them with whatever it can, and Pillow does not mind
  /// any number of them.
  int maximum_warnings = 16;
};

namespace detail {

/// Throws UsageError for options that contradict their documentation, whatever the picture.
void check_options(const DecodeOptions& options);

/// Throws EnvironmentError where the picture has more pixels than the options allow.
void check_pixels(const char* format, const DecodeOptions& options, std::uint64_t width, std::uint64_t height);

/// The rectangle that the options want of a picture of this (scaled) size. Throws UsageError where it sticks out.
Crop crop_of(const DecodeOptions& options, int width, int height);

/// Gives the image that size, with pixels of any value. Memory that it has is used again.
void shape(Image& image, int width, int height, int channels);

/// `size` pixels at a scale of 1 / `denominator`.
inline int scaled(int size, int denominator) {
  return (size + denominator - 1) / denominator;
}

/// Throws EnvironmentError for the file `name`, which is, or should be, of `format`.
[[noreturn]] void fail_image(const char* format, const std::string& name, std::uint64_t offset,
                             const std::string& expected_and_found);

/// Converts a run of pixels. `from` and `to` do not overlap. All of them compute what Pillow does (Convert.c), exactly.
using ConvertPixels = void (*)(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

void copy_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);
void copy_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

/// ITU-R 601-2 luma in 16-bit fixed point, rounded: Pillow's L24.
void rgb_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

/// Cyan, magenta, yellow and black as libjpeg gives them. Pillow takes them for inverted, as Adobe's programs write
/// them, whether or not the file has Adobe's marker; a colour is then (255 - K) - (255 - K) C / 255, rounded.
void inverted_cmyk_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);
void inverted_cmyk_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

/// 16-bit grey in the machine's byte order. Pillow keeps the values up to 255 and clips the others to 255.
void clip_grey16_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);
void clip_grey16_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

}  // namespace detail

}  // namespace libtrain::data
