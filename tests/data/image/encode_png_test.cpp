#include <libtrain/data/image/encode_png.hpp>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/decoders.hpp>
#include <tests/data/image/pictures.hpp>
#include <tests/support/file_size_limit.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {

namespace {

using libtrain::test::decode_png;
using libtrain::test::FileSizeLimit;
using libtrain::test::message_of;
using libtrain::test::random_picture;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
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

TEST(PngFile, HasTheEncodedBytes) {
  const TemporaryFolder folder;
  const Image picture = random_picture(9, 7, 3);
  write_png(random_picture(1, 1, 1), folder / "picture.png");
  write_png(picture, folder / "picture.png");
  const auto bytes = read_file(folder / "picture.png");
  EXPECT_EQ(decode_png(std::as_bytes(std::span(bytes))).pixels, picture.pixels);
  EXPECT_EQ(folder.count(), 1);
}

TEST(PngFile, ThatCannotBeWrittenIsAnErrorAndLeavesTheFormerOne) {
  const TemporaryFolder folder;
  const Image picture = random_picture(100, 100, 3);
  EXPECT_THAT(message_of<EnvironmentError>([&] { write_png(picture, folder / "none/picture.png"); }),
              HasSubstr("none/picture.png"));
  write_png(random_picture(1, 1, 1), folder / "picture.png");
  const auto former = read_file(folder / "picture.png");
  {
    const FileSizeLimit limit(1000);
    EXPECT_THAT(message_of<EnvironmentError>([&] { write_png(picture, folder / "picture.png"); }),
                HasSubstr("picture.png': File too large"));
  }
  EXPECT_EQ(read_file(folder / "picture.png"), former);
  EXPECT_EQ(folder.count(), 1);
}

}  // namespace

}  // namespace libtrain::data
