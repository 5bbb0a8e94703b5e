#include <libtrain/data/image/image_header.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::JpegColor;
using libtrain::test::JpegScans;
using libtrain::test::message_of;
using libtrain::test::write_jpeg;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Bytes = std::vector<int>;

std::vector<std::byte> file_of(const std::vector<Bytes>& parts) {
  std::vector<std::byte> file;
  for (const auto& part : parts) {
    for (const int byte : part) file.push_back(static_cast<std::byte>(byte));
  }
  return file;
}

// A marker segment: 0xFF, the code, the length, the payload.
Bytes segment(int code, const Bytes& payload) {
  const int length = static_cast<int>(payload.size()) + 2;
  Bytes bytes{0xFF, code, length >> 8, length & 0xFF};
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

const Bytes kStart{0xFF, 0xD8};
const Bytes kColorFrame{8, 1, 0x77, 1, 0xF4, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1};  // 500 x 375, 4:2:0
const Bytes kColorScan{3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0};

std::vector<std::byte> jpeg(const Bytes& frame = kColorFrame, const Bytes& scan = kColorScan, int code = 0xC0) {
  return file_of({kStart, segment(code, frame), segment(0xDA, scan)});
}

std::string jpeg_error(const std::vector<std::byte>& file) {
  return message_of<EnvironmentError>([&] { parse_jpeg_header(file, "cat.jpg"); });
}

std::vector<std::byte> png(const Bytes& size = {0, 0, 1, 0xF4, 0, 0, 1, 0x77}, const Bytes& kind = {8, 2, 0, 0, 0}) {
  const Bytes signature{0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A};
  return file_of({signature, {0, 0, 0, 13, 'I', 'H', 'D', 'R'}, size, kind, {1, 2, 3, 4}});
}

std::string png_error(const std::vector<std::byte>& file) {
  return message_of<EnvironmentError>([&] { parse_png_header(file, "cat.png"); });
}

TEST(ImageHeader, SniffsFormatsByTheirFirstBytes) {
  EXPECT_EQ(sniff_image_format(jpeg()), ImageFormat::jpeg);
  EXPECT_EQ(sniff_image_format(png()), ImageFormat::png);
  EXPECT_EQ(sniff_image_format(file_of({{'G', 'I', 'F', '8'}})), ImageFormat::unknown);
  EXPECT_EQ(sniff_image_format(file_of({kStart})), ImageFormat::unknown);
  EXPECT_EQ(sniff_image_format({}), ImageFormat::unknown);
}

TEST(ImageHeader, ReadsTheFieldsOfAJpeg) {
  const Bytes jfif{'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0};
  const Bytes adobe{'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 2};
  const std::vector<Bytes> parts{kStart,
                                 segment(0xE0, jfif),
                                 segment(0xE1, Bytes(300, 0xD8)),
                                 segment(0xEE, adobe),
                                 segment(0xC2, kColorFrame),
                                 segment(0xDD, {0, 4}),
                                 segment(0xDA, kColorScan),
                                 {0x12, 0x34}};
  const auto file = file_of(parts);
  const JpegHeader header = parse_jpeg_header(file, "cat.jpg");
  EXPECT_EQ(header.width, 500);
  EXPECT_EQ(header.height, 375);
  EXPECT_EQ(header.precision, 8);
  EXPECT_EQ(header.component_count, 3);
  EXPECT_EQ(header.components[0].identifier, 1);
  EXPECT_EQ(header.components[0].horizontal_sampling, 2);
  EXPECT_EQ(header.components[0].vertical_sampling, 2);
  EXPECT_EQ(header.components[2].horizontal_sampling, 1);
  EXPECT_TRUE(header.progressive);
  EXPECT_FALSE(header.arithmetic);
  EXPECT_EQ(header.first_scan_components, 3);
  EXPECT_EQ(header.restart_interval, 4);
  EXPECT_TRUE(header.jfif);
  EXPECT_EQ(header.adobe_transform, 2);
  EXPECT_EQ(header.frame_offset, 2U + 18 + 304 + 16);
  EXPECT_EQ(header.scan_offset, file.size() - 2);
  EXPECT_EQ(header.mcu_width(), 16);
  EXPECT_EQ(header.mcus_per_row(), 32);
  EXPECT_EQ(header.mcu_rows(), 24);
}

TEST(ImageHeader, TakesNoOtherSegmentForAdobesOrJfifs) {
  const Bytes extension{'J', 'F', 'X', 'X', 0, 0x10};
  const Bytes without_transform{'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0};
  const auto file = file_of({kStart, segment(0xE0, extension), segment(0xEE, without_transform),
                             segment(0xC0, kColorFrame), segment(0xDA, kColorScan)});
  const JpegHeader header = parse_jpeg_header(file, "cat.jpg");
  EXPECT_FALSE(header.jfif);
  EXPECT_FALSE(header.adobe_transform.has_value());
}

TEST(ImageHeader, SkipsWhatLibjpegSkipsBetweenMarkers) {
  const auto file = file_of({kStart,
                             {0x00, 0x12, 0xFF, 0x00, 0xFF, 0xFF},
                             segment(0xC0, kColorFrame),
                             {0xFF, 0xD0, 0xFF, 0x01},
                             segment(0xDA, kColorScan)});
  const JpegHeader header = parse_jpeg_header(file, "cat.jpg");
  EXPECT_EQ(header.width, 500);
  EXPECT_EQ(header.scan_offset, file.size());
}

TEST(ImageHeader, ReadsTheHeadersThatLibjpegWrites) {
  for (const auto& recipe : libtrain::test::all_recipes()) {
    const auto file = write_jpeg(recipe);
    const JpegHeader header = parse_jpeg_header(file, recipe.name);
    EXPECT_EQ(header.width, recipe.width) << recipe.name;
    EXPECT_EQ(header.height, recipe.height) << recipe.name;
    EXPECT_EQ(header.progressive, recipe.scans == JpegScans::progressive || recipe.scans == JpegScans::dc_only)
        << recipe.name;
    EXPECT_EQ(header.arithmetic, recipe.arithmetic) << recipe.name;
    EXPECT_EQ(header.restart_interval, static_cast<int>(recipe.restart_interval)) << recipe.name;
    EXPECT_EQ(header.components[0].horizontal_sampling, recipe.luma.horizontal) << recipe.name;
    EXPECT_EQ(header.first_scan_components < header.component_count, recipe.scans == JpegScans::separate)
        << recipe.name;
    EXPECT_EQ(header.adobe_transform.has_value(),
              recipe.color == JpegColor::rgb || recipe.color == JpegColor::cmyk || recipe.color == JpegColor::ycck)
        << recipe.name;
    EXPECT_EQ(read_image_header(file, recipe.name).channels, header.component_count) << recipe.name;
  }
}

TEST(ImageHeader, RefusesMalformedJpegs) {
  EXPECT_THAT(jpeg_error({}),
              AllOf(HasSubstr("JPEG 'cat.jpg'"), HasSubstr("byte offset 0"), HasSubstr("end of the file")));
  EXPECT_THAT(jpeg_error(png()), HasSubstr("found 0x8950"));
  EXPECT_THAT(jpeg_error(file_of({kStart, {0xFF, 0xC0, 0, 1}})),
              AllOf(HasSubstr("byte offset 4"), HasSubstr("at least 2 bytes, found 1")));
  EXPECT_THAT(jpeg_error(file_of({kStart, {0xFF, 0xE1, 0xFF, 0xFF, 0}})),
              AllOf(HasSubstr("65535 bytes from byte offset 4"), HasSubstr("end of the file")));
  EXPECT_THAT(jpeg_error(file_of({kStart, segment(0xC0, {8, 0, 1})})), HasSubstr("at least 6 bytes, found 3"));
  EXPECT_THAT(jpeg_error(jpeg({8, 0, 0, 0, 9, 1, 1, 0x11, 0})),
              AllOf(HasSubstr("byte offset 7"), HasSubstr("found 0 x 9")));
  EXPECT_THAT(jpeg_error(jpeg({8, 0, 9, 0, 9, 5})), AllOf(HasSubstr("byte offset 11"), HasSubstr("found 5")));
  EXPECT_THAT(jpeg_error(jpeg({8, 0, 9, 0, 9, 0})), AllOf(HasSubstr("byte offset 11"), HasSubstr("found 0")));
  EXPECT_THAT(jpeg_error(jpeg({8, 0, 9, 0, 9, 3, 1, 0x11, 0})), HasSubstr("15 bytes for 3 components, found 9"));
  EXPECT_THAT(jpeg_error(jpeg({8, 0, 9, 0, 9, 1, 1, 0x51, 0})), HasSubstr("found 5 x 1"));
  EXPECT_THAT(jpeg_error(jpeg({8, 0, 9, 0, 9, 1, 1, 0x10, 0})), HasSubstr("found 1 x 0"));
  EXPECT_THAT(jpeg_error(jpeg(kColorFrame, kColorScan, 0xC3)), AllOf(HasSubstr("0xc3"), HasSubstr("lossless")));
  EXPECT_THAT(jpeg_error(jpeg(kColorFrame, {4, 1, 0, 2, 0})), HasSubstr("1 to 3 components, found 4"));
  EXPECT_THAT(jpeg_error(jpeg(kColorFrame, {3, 1, 0, 2, 0})), HasSubstr("10 bytes for 3 components, found 5"));
  EXPECT_THAT(jpeg_error(jpeg(kColorFrame, {})), HasSubstr("found 0"));
  EXPECT_THAT(jpeg_error(file_of({kStart, segment(0xDA, kColorScan)})), HasSubstr("frame header before"));
  EXPECT_THAT(jpeg_error(file_of({kStart, segment(0xC0, kColorFrame), segment(0xC1, kColorFrame)})),
              HasSubstr("a second one"));
  EXPECT_THAT(jpeg_error(file_of({kStart, segment(0xC0, kColorFrame), {0xFF, 0xD9}})), HasSubstr("end of the image"));
  EXPECT_THAT(jpeg_error(file_of({kStart, segment(0xDD, {1})})), HasSubstr("restart interval of 2 bytes, found 1"));
}

TEST(ImageHeader, EveryTruncationOfAHeaderIsAnError) {
  const auto whole = jpeg();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THAT(jpeg_error(part), HasSubstr("byte offset")) << length;
  }
  const auto whole_png = png();
  for (std::size_t length = 0; length < whole_png.size(); ++length) {
    const std::vector<std::byte> part(whole_png.begin(), whole_png.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THAT(png_error(part), HasSubstr("byte offset")) << length;
  }
}

TEST(ImageHeader, ReadsTheFieldsOfAPng) {
  const PngHeader header = parse_png_header(png({0, 0, 1, 0xF4, 0, 0, 1, 0x77}, {16, 6, 0, 0, 1}), "cat.png");
  EXPECT_EQ(header.width, 500);
  EXPECT_EQ(header.height, 375);
  EXPECT_EQ(header.bit_depth, 16);
  EXPECT_EQ(header.color, PngColor::rgb_alpha);
  EXPECT_EQ(header.channels(), 4);
  EXPECT_TRUE(header.interlaced);
  EXPECT_EQ(read_image_header(png({0, 0, 0, 1, 0, 0, 0, 1}, {4, 3, 0, 0, 0}), "cat.png").channels, 3);
}

TEST(ImageHeader, SaysTheSameOfBothFormats) {
  const ImageHeader of_jpeg = read_image_header(jpeg(kColorFrame, kColorScan, 0xC2), "cat.jpg");
  EXPECT_EQ(of_jpeg.format, ImageFormat::jpeg);
  EXPECT_EQ(of_jpeg.height, 375);
  EXPECT_EQ(of_jpeg.bit_depth, 8);
  EXPECT_TRUE(of_jpeg.progressive);
  EXPECT_FALSE(read_image_header(jpeg(), "cat.jpg").progressive);
  const ImageHeader of_png = read_image_header(png({0, 0, 1, 0xF4, 0, 0, 1, 0x77}, {16, 4, 0, 0, 1}), "cat.png");
  EXPECT_EQ(of_png.format, ImageFormat::png);
  EXPECT_EQ(of_png.height, 375);
  EXPECT_EQ(of_png.channels, 2);
  EXPECT_EQ(of_png.bit_depth, 16);
  EXPECT_TRUE(of_png.progressive);
  EXPECT_FALSE(read_image_header(png(), "cat.png").progressive);
}

TEST(ImageHeader, RefusesMalformedPngs) {
  EXPECT_THAT(png_error(jpeg()), AllOf(HasSubstr("PNG 'cat.png'"), HasSubstr("signature")));
  auto other_chunk = png();
  other_chunk[12] = std::byte{'X'};
  EXPECT_THAT(png_error(other_chunk), AllOf(HasSubstr("byte offset 8"), HasSubstr("IHDR")));
  EXPECT_THAT(png_error(png({0, 0, 0, 0, 0, 0, 0, 1})), AllOf(HasSubstr("byte offset 16"), HasSubstr("found 0 x 1")));
  EXPECT_THAT(png_error(png({0, 0, 0, 1, 0x80, 0, 0, 0})), HasSubstr("found 1 x 2147483648"));
  EXPECT_THAT(png_error(png({0x80, 0, 0, 0, 0, 0, 0, 1})), HasSubstr("found 2147483648 x 1"));
  EXPECT_THAT(png_error(png({0, 0, 0, 1, 0, 0, 0, 0})), HasSubstr("found 1 x 0"));
  EXPECT_THAT(png_error(png({0, 0, 0, 1, 0, 0, 0, 1}, {3, 0, 0, 0, 0})), HasSubstr("found 3 and 0"));
  EXPECT_THAT(png_error(png({0, 0, 0, 1, 0, 0, 0, 1}, {8, 2, 1, 0, 0})), HasSubstr("found 1, 0 and 0"));
  EXPECT_THAT(png_error(png({0, 0, 0, 1, 0, 0, 0, 1}, {8, 2, 0, 1, 0})), HasSubstr("found 0, 1 and 0"));
  EXPECT_THAT(png_error(png({0, 0, 0, 1, 0, 0, 0, 1}, {4, 2, 0, 0, 0})), HasSubstr("found 4 and 2"));
  EXPECT_THAT(png_error(png({0, 0, 0, 1, 0, 0, 0, 1}, {16, 3, 0, 0, 0})), HasSubstr("found 16 and 3"));
  EXPECT_THAT(png_error(png({0, 0, 0, 1, 0, 0, 0, 1}, {8, 5, 0, 0, 0})), HasSubstr("found 8 and 5"));
  EXPECT_THAT(png_error(png({0, 0, 0, 1, 0, 0, 0, 1}, {8, 2, 0, 0, 2})), HasSubstr("found 0, 0 and 2"));
}

TEST(ImageHeader, LimitsPixels) {
  EXPECT_EQ(read_image_header(jpeg(), "cat.jpg", 500 * 375).width, 500);
  const auto message = message_of<EnvironmentError>([] { read_image_header(jpeg(), "cat.jpg", 500 * 375 - 1); });
  EXPECT_THAT(message, AllOf(HasSubstr("'cat.jpg' has 500 x 375 pixels"), HasSubstr("at most 187499")));
  const auto bomb =
      message_of<EnvironmentError>([] { read_image_header(png({0, 0, 0x7F, 0xFF, 0, 0, 0x7F, 0xFF}), "bomb.png"); });
  EXPECT_THAT(bomb, HasSubstr("at most 178956970"));
}

TEST(ImageHeader, NamesTheBytesOfOtherFormats) {
  const auto message =
      message_of<EnvironmentError>([] { read_image_header(file_of({{'G', 'I', 'F', '8', '9', 'a'}}), "cat.gif"); });
  EXPECT_THAT(message, AllOf(HasSubstr("'cat.gif'"), HasSubstr("found 0x47494638")));
  const auto empty = message_of<EnvironmentError>([] { read_image_header({}, "empty"); });
  EXPECT_THAT(empty, HasSubstr("found the end of the file"));
}

}  // namespace
}  // namespace libtrain::data
