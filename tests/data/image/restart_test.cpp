#include <libtrain/data/image/detail/restart.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::all_recipes;
using libtrain::test::cropped;
using libtrain::test::JpegColor;
using libtrain::test::JpegRecipe;
using libtrain::test::JpegScans;
using libtrain::test::message_of;
using libtrain::test::reference_decode;
using libtrain::test::write_jpeg;
using test::random_crop;
using test::words_for;
using ::testing::HasSubstr;

std::vector<std::byte> with_segment(const std::vector<std::byte>& jpeg, int code, const std::string& payload) {
  std::vector<std::byte> result(jpeg.begin(), jpeg.begin() + 2);
  result.push_back(std::byte{0xFF});
  result.push_back(static_cast<std::byte>(code));
  result.push_back(std::byte{0});
  result.push_back(static_cast<std::byte>(payload.size() + 2));
  for (const char character : payload) result.push_back(static_cast<std::byte>(character));
  for (std::size_t index = 2; index < jpeg.size(); ++index) result.push_back(jpeg[index]);
  return result;
}

bool contains(const std::vector<std::byte>& bytes, const std::string& wanted) {
  const auto equal = [](std::byte a, char b) { return a == static_cast<std::byte>(b); };
  return std::search(bytes.begin(), bytes.end(), wanted.begin(), wanted.end(), equal) != bytes.end();
}

TEST(RestartIndex, ChoosesADivisorOfTheRow) {
  EXPECT_EQ(detail::choose_restart_interval(32, 4), 4);
  EXPECT_EQ(detail::choose_restart_interval(32, 8), 8);
  EXPECT_EQ(detail::choose_restart_interval(32, 6), 4);
  EXPECT_EQ(detail::choose_restart_interval(35, 6), 5);
  EXPECT_EQ(detail::choose_restart_interval(40, 4), 4);
  EXPECT_EQ(detail::choose_restart_interval(42, 4), 6);
  EXPECT_EQ(detail::choose_restart_interval(27, 4), 9);
  EXPECT_EQ(detail::choose_restart_interval(26, 4), 13);
  EXPECT_EQ(detail::choose_restart_interval(31, 4), 31);
  EXPECT_EQ(detail::choose_restart_interval(3, 4), 3);
  EXPECT_EQ(detail::choose_restart_interval(1, 4), 1);
}

TEST(RestartIndex, AddedMarkersChangeNoPixel) {
  for (const auto& recipe : all_recipes()) {
    if (recipe.scans != JpegScans::one || recipe.arithmetic || recipe.restart_interval != 0) continue;
    const auto file = write_jpeg(recipe);
    const auto marked = detail::add_restart_markers(file);
    ASSERT_TRUE(marked.has_value()) << recipe.name;
    const JpegHeader header = parse_jpeg_header(*marked, recipe.name);
    EXPECT_EQ(header.restart_interval, detail::choose_restart_interval(header.mcus_per_row(), 4)) << recipe.name;
    const Image before = reference_decode(file);
    const Image after = reference_decode(*marked);
    EXPECT_EQ(after.width, before.width) << recipe.name;
    EXPECT_TRUE(after.pixels == before.pixels) << recipe.name;
    detail::RestartIndex index;
    EXPECT_TRUE(detail::find_restart_segments(*marked, header, index)) << recipe.name;
  }
}

TEST(RestartIndex, AddedMarkersKeepTheOthers) {
  const auto plain = write_jpeg({.width = 80, .height = 40, .color = JpegColor::cmyk});
  const auto with_last = with_segment(plain, 0xEF, "the last application's");
  const auto file = with_segment(with_segment(with_last, 0xE2, "ICC_PROFILE and so on"), 0xFE, "a comment");
  const auto marked = detail::add_restart_markers(file);
  ASSERT_TRUE(marked.has_value());
  EXPECT_TRUE(contains(*marked, "the last application's"));
  EXPECT_TRUE(contains(*marked, "ICC_PROFILE and so on"));
  EXPECT_TRUE(contains(*marked, "a comment"));
  const JpegHeader before = parse_jpeg_header(file, "before");
  const JpegHeader after = parse_jpeg_header(*marked, "after");
  EXPECT_EQ(after.adobe_transform, before.adobe_transform);
  EXPECT_EQ(after.jfif, before.jfif);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(after.components.at(i).identifier, before.components.at(i).identifier);
}

TEST(RestartIndex, LeavesWhatItCannotCutAsItIs) {
  const auto progressive = write_jpeg({.scans = JpegScans::progressive});
  EXPECT_FALSE(detail::add_restart_markers(progressive).has_value());
  EXPECT_FALSE(detail::add_restart_markers(write_jpeg({.scans = JpegScans::separate})).has_value());
  EXPECT_FALSE(detail::add_restart_markers(write_jpeg({.arithmetic = true})).has_value());
  const auto marked = detail::add_restart_markers(write_jpeg({.width = 128}));
  ASSERT_TRUE(marked.has_value());
  EXPECT_FALSE(detail::add_restart_markers(*marked).has_value());
}

// Rows of 16 MCUs.
TEST(RestartIndex, CutsSegmentsOfMoreThanEightMcusAnew) {
  EXPECT_FALSE(detail::add_restart_markers(write_jpeg({.width = 128, .restart_interval = 8})).has_value());
  const auto marked = detail::add_restart_markers(write_jpeg({.width = 128, .restart_interval = 16}));
  ASSERT_TRUE(marked.has_value());
  EXPECT_EQ(parse_jpeg_header(*marked, "file").restart_interval, 4);
}

TEST(RestartIndex, LeavesAFileWithDamagedPlacesAsItIs) {
  auto file = write_jpeg({.width = 208, .luma = {2, 2}, .restart_interval = 3});  // 13 MCUs a row
  ASSERT_TRUE(detail::add_restart_markers(file).has_value());
  const auto scan = file.begin() + static_cast<std::ptrdiff_t>(parse_jpeg_header(file, "file").scan_offset);
  const std::vector<std::byte> marker{std::byte{0xFF}, std::byte{0xD0}};
  // The first three MCUs lose all their data.
  file.erase(scan, std::search(scan, file.end(), marker.begin(), marker.end()));
  EXPECT_FALSE(detail::add_restart_markers(file).has_value());
}

TEST(RestartIndex, RefusesDamagedFilesAndOddOptions) {
  const auto file = write_jpeg({.width = 128, .height = 96});
  const std::vector<std::byte> half(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(file.size() / 2));
  EXPECT_THAT(message_of<EnvironmentError>([&] { detail::add_restart_markers(half, {.name = "cat.jpg"}); }),
              HasSubstr("JPEG 'cat.jpg'"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { detail::add_restart_markers(file, {.maximum_pixels = 100}); }),
              HasSubstr("at most 100"));
  EXPECT_THAT(message_of<UsageError>([&] { detail::add_restart_markers(file, {.interval = 3}); }),
              HasSubstr("interval is 3"));
  EXPECT_THAT(message_of<UsageError>([&] { detail::add_restart_markers(file, {.interval = 9}); }),
              HasSubstr("interval is 9"));
}

// Segments found are those that a search for markers, byte by byte, finds.
TEST(RestartIndex, FindsEverySegment) {
  const auto file = write_jpeg({.width = 160, .height = 90, .luma = {2, 2}, .restart_interval = 5, .quality = 98});
  const JpegHeader header = parse_jpeg_header(file, "file");
  detail::RestartIndex index;
  ASSERT_TRUE(detail::find_restart_segments(file, header, index));
  EXPECT_EQ(index.interval, 5);
  EXPECT_EQ(index.segments_per_row, 2);
  EXPECT_EQ(index.rows, 6);
  std::vector<std::uint32_t> wanted{static_cast<std::uint32_t>(header.scan_offset)};
  for (std::size_t i = header.scan_offset; i + 1 < file.size(); ++i) {
    if (file[i] == std::byte{0xFF} && file[i + 1] >= std::byte{0xD0} && file[i + 1] <= std::byte{0xD9}) {
      wanted.push_back(static_cast<std::uint32_t>(i + 2));
    }
  }
  EXPECT_EQ(index.starts, wanted);
  EXPECT_EQ(index.starts.size(), 13U);
}

// Any number of bytes 0xFF may stand before a marker (ITU-T T.81, B.1.1.2).
TEST(RestartIndex, FindsMarkersBehindBytesThatFill) {
  const auto file = write_jpeg({.width = 160, .height = 90, .luma = {2, 2}, .restart_interval = 5});
  const JpegHeader header = parse_jpeg_header(file, "file");
  detail::RestartIndex index;
  ASSERT_TRUE(detail::find_restart_segments(file, header, index));
  auto wanted = index.starts;
  for (std::size_t i = 1; i < wanted.size(); ++i) wanted[i] += 2;
  auto filled = file;
  filled.insert(filled.begin() + static_cast<std::ptrdiff_t>(index.starts[1]) - 2, 2, std::byte{0xFF});
  ASSERT_TRUE(detail::find_restart_segments(filled, header, index));
  EXPECT_EQ(index.starts, wanted);
}

TEST(RestartIndex, FindsNothingWhereMarkersAreAbsentOrOutOfPlace) {
  detail::RestartIndex index;
  const auto find = [&](const std::vector<std::byte>& file) {
    return detail::find_restart_segments(file, parse_jpeg_header(file, "file"), index);
  };
  EXPECT_FALSE(find(write_jpeg({.width = 160})));
  EXPECT_FALSE(find(write_jpeg({.width = 160, .restart_interval = 3})));  // 20 MCUs a row
  EXPECT_FALSE(find(write_jpeg({.width = 160, .scans = JpegScans::progressive, .restart_interval = 5})));
  EXPECT_FALSE(find(write_jpeg({.width = 160, .arithmetic = true, .restart_interval = 5})));

  const auto file = write_jpeg({.width = 160, .restart_interval = 5});
  ASSERT_TRUE(find(file));
  const auto starts = index.starts;
  JpegHeader of_twelve_bits = parse_jpeg_header(file, "file");
  of_twelve_bits.precision = 12;
  detail::RestartIndex other;
  EXPECT_FALSE(detail::find_restart_segments(file, of_twelve_bits, other));
  auto renumbered = file;
  renumbered[starts[3] - 1] = std::byte{0xD6};
  EXPECT_FALSE(find(renumbered));
  auto ended = file;
  ended[starts[3] - 1] = std::byte{0xD9};
  EXPECT_FALSE(find(ended));
  auto extra = file;
  extra[starts[2] + 4] = std::byte{0xFF};
  extra[starts[2] + 5] = std::byte{0xD2};
  EXPECT_FALSE(find(extra));
  for (const std::size_t length : {file.size() - 1, file.size() - 2, file.size() / 2}) {
    EXPECT_FALSE(find(std::vector<std::byte>(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length))));
  }
}

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
    detail::RestartIndex index;
    ASSERT_TRUE(detail::find_restart_segments(file, header, index)) << recipe.name;
    std::vector<std::byte> part;
    for (const int scale : {1, 1, 2, 4, 8}) {
      const Image whole = reference_decode(file, scale);
      for (int i = 0; i < kCropsOfEach; ++i) {
        const Crop crop = random_crop(random, whole.width, whole.height);
        const std::string what = recipe.name + " at 1/" + std::to_string(scale) + ", " + words_for(crop);
        const Image wanted = cropped(whole, crop);
        const Image image = decoder.decode(file, {.scale_denominator = scale, .crop = crop});
        ASSERT_TRUE(image.pixels == wanted.pixels) << what;
        const auto crop_of_part = detail::cut_restart_segments(file, header, index, crop, scale, part);
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
  detail::RestartIndex index;
  ASSERT_TRUE(detail::find_restart_segments(file, header, index));
  std::vector<std::byte> part;
  const auto crop =
      detail::cut_restart_segments(file, header, index, {.x = 70, .y = 40, .width = 50, .height = 20}, 1, part);
  EXPECT_EQ(crop, (Crop{.x = 6, .y = 8, .width = 50, .height = 20}));
  const JpegHeader cut = parse_jpeg_header(part, "part");
  EXPECT_EQ(cut.width, 64);
  EXPECT_EQ(cut.height, 32);
  // At the border of an MCU the neighbours are needed, too.
  detail::cut_restart_segments(file, header, index, {.x = 64, .y = 48, .width = 64, .height = 16}, 1, part);
  EXPECT_EQ(parse_jpeg_header(part, "part").width, 3 * 64);
  EXPECT_EQ(parse_jpeg_header(part, "part").height, 3 * 16);
  const Crop all{.x = 0, .y = 0, .width = 512, .height = 256};
  EXPECT_FALSE(detail::cut_restart_segments(file, header, index, all, 1, part).has_value());
}

TEST(RestartSegments, ADamagedSegmentElsewhereIsNotNoticed) {
  auto file = write_jpeg({.width = 256, .height = 128, .luma = {2, 2}, .restart_interval = 4});
  const Crop crop{.x = 200, .y = 100, .width = 40, .height = 20};
  const Image wanted = cropped(reference_decode(file), crop);
  detail::RestartIndex index;
  ASSERT_TRUE(detail::find_restart_segments(file, parse_jpeg_header(file, "file"), index));
  // Removes the whole first segment, except for the marker after it.
  file.erase(file.begin() + static_cast<std::ptrdiff_t>(index.starts[0]),
             file.begin() + static_cast<std::ptrdiff_t>(index.starts[1]) - 2);
  EXPECT_THROW(decode_image(file, {.maximum_warnings = 0}), EnvironmentError);
  EXPECT_TRUE(decode_image(file, {.crop = crop, .maximum_warnings = 0}).pixels == wanted.pixels);
}

}  // namespace
}  // namespace libtrain::data
