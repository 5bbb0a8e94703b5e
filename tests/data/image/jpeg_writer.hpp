#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <libtrain/data/image/image.hpp>

namespace libtrain::test {

enum class JpegColor { grey, ycc, rgb, cmyk, ycck };

/// The scans that a JPEG has: `separate` is sequential with one scan a component; `dc_only` is progressive and ends
/// after the first scan, so that decoders smooth across blocks.
enum class JpegScans { one, separate, progressive, dc_only };

struct Sampling {
  int horizontal = 1;
  int vertical = 1;
};

/// A JPEG of a smooth image with noise, written by libjpeg.
struct JpegRecipe {
  std::string name = "plain";
  int width = 64;
  int height = 48;
  JpegColor color = JpegColor::ycc;
  Sampling luma = {};  ///< of the first component and, in YCCK, of black; all components of RGB and CMYK have {1, 1}
  Sampling chroma = {};
  JpegScans scans = JpegScans::one;
  bool arithmetic = false;
  unsigned int restart_interval = 0;  ///< MCUs
  int quality = 90;
  unsigned int seed = 1;  ///< of the noise
};

/// HWC bytes, different in every channel.
std::vector<std::uint8_t> synthetic_picture(int width, int height, int channels, unsigned int seed);

std::vector<std::byte> write_jpeg(const JpegRecipe& recipe);

/// Every sampling that libjpeg-turbo upsamples in another way, every kind of scan, every colour space, and odd sizes.
std::vector<JpegRecipe> all_recipes();

/// The result of plain libjpeg when it decodes all rows: RGB; CMYK is converted by the formula of decode_options.hpp in
/// floating point.
data::Image reference_decode(std::span<const std::byte> file, int scale_denominator = 1);

/// The pixels of a rectangle of `image`.
data::Image cropped(const data::Image& image, const data::Crop& crop);

}  // namespace libtrain::test
