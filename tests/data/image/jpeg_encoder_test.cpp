#include <libtrain/data/image/jpeg_encoder.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/decode_jpeg.hpp>
#include <libtrain/data/image/image_header.hpp>
#include <libtrain/data/image/restart_index.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/data/image/pictures.hpp>
#include <tests/data/image/smooth_picture.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::reference_decode;
using test::constant_picture;
using test::mean_difference;
using test::smooth_picture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using File = std::vector<std::byte>;

int largest_difference(const Image& left, const Image& right) {
  int difference = 0;
  for (std::size_t i = 0; i < left.pixels.size(); ++i) {
    difference = std::max(difference, std::abs(left.pixels[i] - right.pixels[i]));
  }
  return difference;
}

// The steps of brightness for no, one horizontal and one vertical half-wave: the first three of the first table.
std::vector<int> first_quantization_steps(const File& file) {
  constexpr std::array kTable{std::byte{0xFF}, std::byte{0xDB}, std::byte{0}, std::byte{67}, std::byte{0}};
  const auto found = std::search(file.begin(), file.end(), kTable.begin(), kTable.end());
  if (file.end() - found < 8) return {};
  return {std::to_integer<int>(found[5]), std::to_integer<int>(found[6]), std::to_integer<int>(found[7])};
}

TEST(JpegEncoder, KeepsASmoothPicture) {
  for (const auto subsampling : {ChromaSubsampling::yuv444, ChromaSubsampling::yuv420}) {
    const Image picture = smooth_picture(121, 83, 3);
    const Image decoded = reference_decode(encode_jpeg(picture, {.subsampling = subsampling}));
    ASSERT_EQ(decoded.width, 121);
    ASSERT_EQ(decoded.height, 83);
    EXPECT_LT(mean_difference(decoded, picture), 1);
    EXPECT_LE(largest_difference(decoded, picture), 10);
  }
}

TEST(JpegEncoder, KeepsGreyPicturesGrey) {
  const Image picture = smooth_picture(50, 30, 1);
  const File file = encode_jpeg(picture);
  EXPECT_EQ(parse_jpeg_header(file, "file").component_count, 1);
  const Image decoded = decode_jpeg(file, {.channels = 1});
  ASSERT_EQ(decoded.pixels.size(), picture.pixels.size());
  EXPECT_LT(mean_difference(decoded, picture), 1);
}

// A constant block is its mean alone, and 128 the value that its code counts from.
TEST(JpegEncoder, KeepsAConstantGreyExactly) {
  const Image picture = constant_picture(20, 10, 1, 128);
  EXPECT_EQ(decode_jpeg(encode_jpeg(picture, {.quality = 30}), {.channels = 1}).pixels, picture.pixels);
}

TEST(JpegEncoder, SubsamplesAsAskedFor) {
  const Image picture = smooth_picture(40, 40, 3);
  const JpegHeader half = parse_jpeg_header(encode_jpeg(picture), "file");
  EXPECT_EQ(half.components[0].horizontal_sampling, 2);
  EXPECT_EQ(half.components[0].vertical_sampling, 2);
  EXPECT_EQ(half.components[1].horizontal_sampling, 1);
  EXPECT_EQ(half.components[2].vertical_sampling, 1);
  const JpegHeader full = parse_jpeg_header(encode_jpeg(picture, {.subsampling = ChromaSubsampling::yuv444}), "file");
  EXPECT_EQ(full.maximum_horizontal_sampling(), 1);
  EXPECT_EQ(full.maximum_vertical_sampling(), 1);
}

// ITU-T T.81, table K.1, begins 16, 11, 12; libjpeg halves its steps at quality 75 and takes a tenth at 95, where
// (16 * 10 + 50) / 100 = 2 and the others are 1.
TEST(JpegEncoder, QuantizesByTheQuality) {
  const Image picture = smooth_picture(40, 40, 3);
  EXPECT_THAT(first_quantization_steps(encode_jpeg(picture, {.quality = 50})), ElementsAre(16, 11, 12));
  EXPECT_THAT(first_quantization_steps(encode_jpeg(picture, {.quality = 75})), ElementsAre(8, 6, 6));
  EXPECT_THAT(first_quantization_steps(encode_jpeg(picture)), ElementsAre(2, 1, 1));
}

TEST(JpegEncoder, WritesRestartMarkersWhereTheyAreAskedFor) {
  const Image picture = smooth_picture(128, 48, 3);  // rows of 8 MCUs
  const File plain = encode_jpeg(picture);
  EXPECT_EQ(parse_jpeg_header(plain, "file").restart_interval, 0);
  const File file = encode_jpeg(picture, {.restart_interval = 4});
  const JpegHeader header = parse_jpeg_header(file, "file");
  EXPECT_EQ(header.restart_interval, 4);
  RestartIndex index;
  ASSERT_TRUE(find_restart_segments(file, header, index));
  EXPECT_EQ(index.starts.size(), 2u * 3u + 1u);
  EXPECT_TRUE(reference_decode(file).pixels == reference_decode(plain).pixels);
}

TEST(JpegEncoder, RefusesWhatNoJpegHas) {
  const Image picture = smooth_picture(8, 8, 3);
  const auto refuses = [&](const JpegEncoderOptions& options) {
    return message_of<UsageError>([&] { encode_jpeg(picture, options); });
  };
  EXPECT_THAT(refuses({.quality = 0}), HasSubstr("::quality is 0, expected 1 to 100"));
  EXPECT_THAT(refuses({.quality = 101}), HasSubstr("101"));
  EXPECT_THAT(refuses({.restart_interval = -1}), HasSubstr("::restart_interval is -1, expected 0 to 65535"));
  EXPECT_THAT(refuses({.restart_interval = 65536}), HasSubstr("::restart_interval is 65536"));
  EXPECT_THAT(message_of<UsageError>([] { encode_jpeg(constant_picture(65501, 1, 1, 0)); }), HasSubstr("65501 x 1"));
  EXPECT_THAT(message_of<UsageError>([] { encode_jpeg(Image{.width = 2, .height = 2}); }), HasSubstr("0 bytes"));
}

}  // namespace
}  // namespace libtrain::data
