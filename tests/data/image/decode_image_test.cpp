#include <libtrain/data/image/decode_image.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/data/image/pictures.hpp>
#include <tests/data/image/png_writer.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::cropped;
using libtrain::test::message_of;
using libtrain::test::reference_decode;
using libtrain::test::write_jpeg;
using libtrain::test::write_png;
using ::testing::HasSubstr;

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
