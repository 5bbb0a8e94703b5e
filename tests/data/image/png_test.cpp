#include <libtrain/data/image/detail/png.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/decoders.hpp>
#include <tests/data/image/jpeg_writer.hpp>
#include <tests/data/image/png_writer.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {

namespace {

using libtrain::test::all_png_recipes;
using libtrain::test::cropped;
using libtrain::test::decode_png;
using libtrain::test::message_of;
using libtrain::test::write_png;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PngDecoder, DecodesAllKindsAsPillowDoes) {
  for (const auto& recipe : all_png_recipes()) {
    const auto png = write_png(recipe);
    const Image image = decode_png(png.file);
    EXPECT_EQ(image.width, recipe.width) << recipe.name;
    EXPECT_EQ(image.height, recipe.height) << recipe.name;
    EXPECT_TRUE(image.pixels == png.rgb.pixels) << recipe.name;
  }
}

TEST(PngDecoder, GreyIsRoundedLuma) {
  for (const auto& recipe : all_png_recipes()) {
    const auto png = write_png(recipe);
    const Image image = decode_png(png.file, {.channels = 1});
    ASSERT_EQ(image.pixels.size() * 3, png.rgb.pixels.size()) << recipe.name;
    for (std::size_t i = 0; i < image.pixels.size(); ++i) {
      const std::uint8_t* rgb = png.rgb.pixels.data() + 3 * i;
      ASSERT_NEAR(image.pixels[i], 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2], 0.51) << recipe.name;
    }
  }
}

TEST(PngDecoder, ARectangleHasThePixelsThatItHasInTheWholePicture) {
  const Crop crop{.x = 4, .y = 3, .width = 11, .height = 9};
  for (const auto& recipe : all_png_recipes()) {
    const auto png = write_png(recipe);
    EXPECT_TRUE(decode_png(png.file, {.crop = crop}).pixels == cropped(png.rgb, crop).pixels) << recipe.name;
  }
}

TEST(PngDecoder, EveryTruncationOfThePixelsIsAnErrorThatSaysWhere) {
  const auto file = write_png({}).file;
  // After the pixels are 4 bytes of checksum and 12 of the last chunk.
  for (std::size_t length = 0; length + 16 < file.size(); length += 7) {
    const std::vector<std::byte> part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
    const auto message = message_of<EnvironmentError>([&] { decode_png(part, {.name = "cat.png"}); });
    EXPECT_THAT(message, AllOf(HasSubstr("PNG 'cat.png'"), HasSubstr("byte offset"))) << length;
    if (length > 33) {
      EXPECT_THAT(message, HasSubstr("byte offset " + std::to_string(length)));
    }
  }
}

TEST(PngDecoder, AWrongChecksumIsAnError) {
  auto file = write_png({}).file;
  file[29] ^= std::byte{1};
  EXPECT_THAT(message_of<EnvironmentError>([&] { decode_png(file); }), HasSubstr("checksum"));
}

TEST(PngDecoder, RefusesAFileTooShortForItsSizeBeforeAllocating) {
  auto file = write_png({}).file;
  file[18] = std::byte{0x2F};
  file[22] = std::byte{0x2F};
  EXPECT_THAT(message_of<EnvironmentError>([&] { decode_png(file); }),
              AllOf(HasSubstr("12055 x 12049 pixels"), HasSubstr("truncated")));
  file[18] = std::byte{0x7F};
  EXPECT_THAT(message_of<EnvironmentError>([&] { decode_png(file); }), HasSubstr("maximum_pixels"));
}

// A byte of deflated data becomes 1032 at most (zlib's technical details): 129 rows of 8 pixels.
TEST(PngDecoder, TakesAFileForTruncatedWhereNoDataCouldInflateToItsSize) {
  auto file = write_png({.width = 8, .height = 1, .color = PngColor::grey}).file;
  const std::size_t size = file.size();
  const auto error_with_height = [&](std::size_t height) {
    for (std::size_t i = 0; i < 4; ++i) file[20 + i] = static_cast<std::byte>((height >> (24 - 8 * i)) & 0xFF);
    return message_of<EnvironmentError>([&] { decode_png(file); });
  };
  EXPECT_THAT(error_with_height(129 * (size + 1)),
              AllOf(HasSubstr("at least " + std::to_string(size + 1) + " bytes"), HasSubstr("truncated")));
  EXPECT_THAT(error_with_height(129 * (size + 1) - 1), HasSubstr("checksum"));
}

TEST(PngDecoder, RefusesOptionsThatDoNotFit) {
  const auto file = write_png({}).file;
  EXPECT_THAT(message_of<UsageError>([&] { decode_png(file, {.scale_denominator = 2}); }),
              HasSubstr("only JPEGs can be scaled"));
  EXPECT_THAT(
      message_of<UsageError>([&] { decode_png(file, {.crop = Crop{.x = 0, .y = 0, .width = 24, .height = 1}}); }),
      HasSubstr("23 x 17 pixels"));
}

}  // namespace

}  // namespace libtrain::data
