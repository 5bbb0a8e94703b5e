#include <libtrain/data/image/png_encoder.hpp>

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/decode_png.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using test::random_picture;
using ::testing::HasSubstr;

TEST(PngEncoder, KeepsEveryPixel) {
  for (const int channels : {1, 3}) {
    for (const auto& [width, height] : {std::pair{1, 1}, std::pair{37, 21}, std::pair{3, 300}}) {
      const Image picture = random_picture(width, height, channels);
      const auto file = encode_png(picture);
      const PngHeader header = parse_png_header(file, "file");
      EXPECT_EQ(header.color, channels == 1 ? PngColor::grey : PngColor::rgb);
      EXPECT_EQ(header.bit_depth, 8);
      EXPECT_FALSE(header.interlaced);
      const Image decoded = decode_png(file, {.channels = channels});
      EXPECT_EQ(decoded.width, width);
      EXPECT_EQ(decoded.height, height);
      EXPECT_EQ(decoded.pixels, picture.pixels);
    }
  }
}

TEST(PngEncoder, RefusesWhatIsNoPicture) {
  EXPECT_THAT(message_of<UsageError>([] { encode_png({.width = 2, .height = 2}); }), HasSubstr("0 bytes"));
  Image picture = random_picture(2, 2, 3);
  picture.channels = 2;
  EXPECT_THAT(message_of<UsageError>([&] { encode_png(picture); }), HasSubstr("2 channels"));
}

}  // namespace
}  // namespace libtrain::data
