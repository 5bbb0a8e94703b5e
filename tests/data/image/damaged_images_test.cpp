// Bit flips, truncation and huge lengths: an error or an image of the size in the header, never anything else.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/detail/restart.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/data/image/png_writer.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::JpegColor;
using libtrain::test::JpegScans;
using libtrain::test::write_jpeg;
using libtrain::test::write_png;

constexpr int kMutationsOfEach = 150;
constexpr std::uint64_t kMax = 1 << 20;

using File = std::vector<std::byte>;

File mutated(const File& file, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random()) % limit; };
  File result = file;
  switch (below(4)) {
    case 0:  // a few bits
      for (std::size_t i = 0; i <= below(8); ++i) {
        result[below(result.size())] ^= static_cast<std::byte>(1 << below(8));
      }
      break;
    case 1:  // a few bits in the headers
      for (std::size_t i = 0; i <= below(4); ++i) {
        result[below(std::min<std::size_t>(result.size(), 600))] ^= static_cast<std::byte>(1 << below(8));
      }
      break;
    case 2:  // the end
      result.resize(below(result.size()));
      break;
    default:  // huge numbers
      for (std::size_t i = below(result.size()), end = std::min(result.size(), i + 4); i < end; ++i) {
        result[i] = std::byte{0xFF};
      }
      break;
  }
  return result;
}

// Whether it decodes.
bool expect_error_or_picture(ImageDecoder& decoder, const File& file, const std::optional<Crop>& crop) {
  try {
    const Image image = decoder.decode(file, {.crop = crop, .maximum_pixels = kMax});
    const ImageHeader header = read_image_header(file, "file", kMax);
    EXPECT_EQ(image.width, crop ? crop->width : header.width);
    EXPECT_EQ(image.height, crop ? crop->height : header.height);
    EXPECT_EQ(image.pixels.size(), image.row_bytes() * static_cast<std::size_t>(image.height));
    return true;
  } catch (const EnvironmentError&) {
  } catch (const UsageError&) {
    EXPECT_TRUE(crop.has_value());  // outside of the image with the new size
  }
  return false;
}

// All files use the same decoder, so that no file may affect the next.
void expect_survival(const File& file) {
  const Crop crop{.x = 9, .y = 20, .width = 11, .height = 13};
  std::mt19937 random(11);
  ImageDecoder decoder;
  EXPECT_TRUE(expect_error_or_picture(decoder, file, crop)) << "the file is refused before it is damaged";
  int refused = 0;
  for (int i = 0; i < kMutationsOfEach; ++i) {
    const File damaged = mutated(file, random);
    refused += expect_error_or_picture(decoder, damaged, std::nullopt) ? 0 : 1;
    expect_error_or_picture(decoder, damaged, crop);
    try {
      detail::add_restart_markers(damaged, {.maximum_pixels = kMax});
    } catch (const EnvironmentError&) {
    }
  }
  EXPECT_GE(refused, 10) << "the damage is too weak to say anything";
  EXPECT_TRUE(decoder.decode(file).pixels == decode_image(file).pixels) << "what was refused harms what is whole";
}

TEST(DamagedImages, BaselineJpegs) {
  expect_survival(write_jpeg({.luma = {2, 2}}));
  expect_survival(write_jpeg({.color = JpegColor::ycck, .luma = {2, 2}}));
}

TEST(DamagedImages, ProgressiveJpegs) {
  expect_survival(write_jpeg({.luma = {2, 2}, .scans = JpegScans::progressive}));
  expect_survival(write_jpeg({.color = JpegColor::grey, .scans = JpegScans::progressive}));
}

TEST(DamagedImages, JpegsOfManyScans) {
  expect_survival(write_jpeg({.luma = {2, 1}, .scans = JpegScans::separate}));
}

TEST(DamagedImages, ArithmeticJpegs) {
  expect_survival(write_jpeg({.luma = {2, 2}, .arithmetic = true}));
}

TEST(DamagedImages, JpegsWithRestartMarkers) {
  expect_survival(write_jpeg({.luma = {2, 2}, .restart_interval = 1}));
  expect_survival(write_jpeg({.width = 80, .restart_interval = 5}));
}

TEST(DamagedImages, Pngs) {
  expect_survival(write_png({.width = 40, .height = 40}).file);
  expect_survival(write_png({.width = 40, .height = 40, .bit_depth = 4, .color = PngColor::palette}).file);
  expect_survival(write_png({.width = 40, .height = 40, .bit_depth = 16, .interlaced = true}).file);
}

}  // namespace
}  // namespace libtrain::data
