#include <libtrain/data/image/decode_image.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/restart.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/data/image/pictures.hpp>
#include <tests/data/image/png_writer.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::cropped;
using libtrain::test::JpegColor;
using libtrain::test::JpegRecipe;
using libtrain::test::message_of;
using libtrain::test::reference_decode;
using libtrain::test::write_jpeg;
using libtrain::test::write_png;
using test::random_crop;
using test::words_for;
using ::testing::HasSubstr;

// Files with a segment for every MCU, for a few, and for a row, of every sampling that restart markers go with.
std::vector<JpegRecipe> restart_recipes() {
  return {
      {.name = "4:4:4", .width = 77, .height = 50, .restart_interval = 2},
      {.name = "4:2:2", .width = 150, .height = 50, .luma = {2, 1}, .restart_interval = 5},
      {.name = "4:2:0", .width = 155, .height = 99, .luma = {2, 2}, .restart_interval = 2},
      {.name = "4:2:0 by MCU", .width = 99, .height = 99, .luma = {2, 2}, .restart_interval = 1},
      {.name = "4:2:0 by row", .width = 99, .height = 99, .luma = {2, 2}, .restart_interval = 7},
      {.name = "4:2:0, three pixels in the last MCU", .width = 35, .height = 33, .luma = {2, 2}, .restart_interval = 1},
      {.name = "4:4:0", .width = 94, .height = 70, .luma = {1, 2}, .restart_interval = 4},
      {.name = "4:1:1", .width = 121, .height = 40, .luma = {4, 1}, .restart_interval = 2},
      {.name = "grey", .width = 90, .height = 70, .color = JpegColor::grey, .restart_interval = 4},
      {.name = "grey 2x2", .width = 90, .height = 70, .color = JpegColor::grey, .luma = {2, 2}, .restart_interval = 4},
      {.name = "ycck", .width = 120, .height = 70, .color = JpegColor::ycck, .luma = {2, 2}, .restart_interval = 4},
      {.name = "4:2:0, four pixels in the last MCU", .width = 36, .height = 33, .luma = {2, 2}, .restart_interval = 1}};
}

TEST(RestartSegments, ARectangleHasThePixelsThatItHasInTheWholePicture) {
  constexpr int kCropsOfEach = 60;
  ImageDecoder decoder;
  std::mt19937 random(5);
  int cut = 0;
  for (const auto& recipe : restart_recipes()) {
    const auto file = write_jpeg(recipe);
    const JpegHeader header = parse_jpeg_header(file, recipe.name);
    RestartIndex index;
    ASSERT_TRUE(find_restart_segments(file, header, index)) << recipe.name;
    std::vector<std::byte> part;
    for (const int scale : {1, 1, 2, 4, 8}) {
      const Image whole = reference_decode(file, scale);
      for (int i = 0; i < kCropsOfEach; ++i) {
        const Crop crop = random_crop(random, whole.width, whole.height);
        const std::string what = recipe.name + " at 1/" + std::to_string(scale) + ", " + words_for(crop);
        const Image wanted = cropped(whole, crop);
        const Image image = decoder.decode(file, {.scale_denominator = scale, .crop = crop});
        ASSERT_TRUE(image.pixels == wanted.pixels) << what;
        const auto crop_of_part = cut_restart_segments(file, header, index, crop, scale, part);
        if (!crop_of_part) continue;
        ++cut;
        ASSERT_LT(part.size(), file.size()) << what;
        ASSERT_TRUE(cropped(reference_decode(part, scale), *crop_of_part).pixels == wanted.pixels) << what;
      }
    }
  }
  EXPECT_GT(cut, 1000);
}

TEST(RestartSegments, HoldOnlyWhatTheRectangleNeeds) {
  const auto file = write_jpeg({.width = 512, .height = 256, .luma = {2, 2}, .restart_interval = 4});
  const JpegHeader header = parse_jpeg_header(file, "file");
  RestartIndex index;
  ASSERT_TRUE(find_restart_segments(file, header, index));
  std::vector<std::byte> part;
  const auto crop = cut_restart_segments(file, header, index, {.x = 70, .y = 40, .width = 50, .height = 20}, 1, part);
  EXPECT_EQ(crop, (Crop{.x = 6, .y = 8, .width = 50, .height = 20}));
  const JpegHeader cut = parse_jpeg_header(part, "part");
  EXPECT_EQ(cut.width, 64);
  EXPECT_EQ(cut.height, 32);
  // At the border of an MCU the neighbours are needed, too.
  cut_restart_segments(file, header, index, {.x = 64, .y = 48, .width = 64, .height = 16}, 1, part);
  EXPECT_EQ(parse_jpeg_header(part, "part").width, 3 * 64);
  EXPECT_EQ(parse_jpeg_header(part, "part").height, 3 * 16);
  const Crop all{.x = 0, .y = 0, .width = 512, .height = 256};
  EXPECT_FALSE(cut_restart_segments(file, header, index, all, 1, part).has_value());
}

TEST(RestartSegments, ADamagedSegmentElsewhereIsNotNoticed) {
  auto file = write_jpeg({.width = 256, .height = 128, .luma = {2, 2}, .restart_interval = 4});
  const Crop crop{.x = 200, .y = 100, .width = 40, .height = 20};
  const Image wanted = cropped(reference_decode(file), crop);
  RestartIndex index;
  ASSERT_TRUE(find_restart_segments(file, parse_jpeg_header(file, "file"), index));
  // All of the first segment goes, but for the marker behind it.
  file.erase(file.begin() + static_cast<std::ptrdiff_t>(index.starts[0]),
             file.begin() + static_cast<std::ptrdiff_t>(index.starts[1]) - 2);
  EXPECT_THROW(decode_image(file, {.maximum_warnings = 0}), EnvironmentError);
  EXPECT_TRUE(decode_image(file, {.crop = crop, .maximum_warnings = 0}).pixels == wanted.pixels);
}

TEST(ImageDecoder, DecodesByTheFirstBytes) {
  const auto jpeg = write_jpeg({.luma = {2, 2}});
  const auto png = write_png({});
  ImageDecoder decoder;
  EXPECT_TRUE(decoder.decode(jpeg).pixels == reference_decode(jpeg).pixels);
  EXPECT_TRUE(decoder.decode(png.file).pixels == png.rgb.pixels);
  const auto message = message_of<EnvironmentError>(
      [&] { decoder.decode(std::vector<std::byte>(20, std::byte{'B'}), {.name = "cat.bmp"}); });
  EXPECT_THAT(message, HasSubstr("'cat.bmp', byte offset 0: expected the first bytes of a JPEG or a PNG"));
}

TEST(ImageDecoder, UsesAnImagesMemoryAgain) {
  const auto jpeg = write_jpeg({.width = 160, .height = 96, .luma = {2, 2}, .restart_interval = 5});
  const auto png = write_png({});
  const Crop crop{.x = 3, .y = 2, .width = 12, .height = 9};
  ImageDecoder decoder;
  Image image;
  decoder.decode(jpeg, read_image_header(jpeg, "jpeg"), {}, image);
  EXPECT_TRUE(image.pixels == reference_decode(jpeg).pixels);
  const std::uint8_t* const memory = image.pixels.data();
  decoder.decode(jpeg, read_image_header(jpeg, "jpeg"), {.crop = crop}, image);
  EXPECT_TRUE(image.pixels == cropped(reference_decode(jpeg), crop).pixels);
  decoder.decode(png.file, read_image_header(png.file, "png"), {.crop = crop}, image);
  EXPECT_TRUE(image.pixels == cropped(png.rgb, crop).pixels);
  EXPECT_EQ(image.pixels.data(), memory);
}

TEST(ImageDecoder, ErrorsOfFilesWithRestartMarkersNameThePlaceInTheFile) {
  const auto whole = write_jpeg({.width = 160, .height = 96, .luma = {2, 2}, .restart_interval = 5});
  const std::vector<std::byte> half(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2));
  const auto message = message_of<EnvironmentError>(
      [&] { decode_image(half, {.name = "cat.jpg", .crop = Crop{.x = 0, .y = 80, .width = 20, .height = 10}}); });
  EXPECT_THAT(message, HasSubstr("JPEG 'cat.jpg', byte offset " + std::to_string(half.size())));
  EXPECT_THAT(
      message_of<UsageError>([&] { decode_image(whole, {.crop = Crop{.x = 150, .y = 0, .width = 20, .height = 10}}); }),
      HasSubstr("160 x 96 pixels"));
}

}  // namespace
}  // namespace libtrain::data
