#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// The most pixels of a picture unless the caller says otherwise: twice Pillow's Image.MAX_IMAGE_PIXELS = 2^30 / 12,
/// rounded down, beyond which Pillow raises DecompressionBombError.
inline constexpr std::uint64_t kMaximumPixels = 178'956'970;

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
  std::uint64_t maximum_pixels = kMaximumPixels;

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

}  // namespace detail

}  // namespace libtrain::data
