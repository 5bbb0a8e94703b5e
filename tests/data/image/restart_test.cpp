#include <libtrain/data/image/restart.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::all_recipes;
using libtrain::test::JpegColor;
using libtrain::test::JpegScans;
using libtrain::test::message_of;
using libtrain::test::reference_decode;
using libtrain::test::write_jpeg;
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
  EXPECT_EQ(choose_restart_interval(32, 4), 4);
  EXPECT_EQ(choose_restart_interval(32, 8), 8);
  EXPECT_EQ(choose_restart_interval(32, 6), 4);
  EXPECT_EQ(choose_restart_interval(35, 6), 5);
  EXPECT_EQ(choose_restart_interval(40, 4), 4);
  EXPECT_EQ(choose_restart_interval(42, 4), 6);
  EXPECT_EQ(choose_restart_interval(27, 4), 9);
  EXPECT_EQ(choose_restart_interval(26, 4), 13);
  EXPECT_EQ(choose_restart_interval(31, 4), 31);
  EXPECT_EQ(choose_restart_interval(3, 4), 3);
  EXPECT_EQ(choose_restart_interval(1, 4), 1);
}

TEST(RestartIndex, AddedMarkersChangeNoPixel) {
  for (const auto& recipe : all_recipes()) {
    if (recipe.scans != JpegScans::one || recipe.arithmetic || recipe.restart_interval != 0) continue;
    const auto file = write_jpeg(recipe);
    const auto marked = add_restart_markers(file);
    ASSERT_TRUE(marked.has_value()) << recipe.name;
    const JpegHeader header = parse_jpeg_header(*marked, recipe.name);
    EXPECT_EQ(header.restart_interval, choose_restart_interval(header.mcus_per_row(), 4)) << recipe.name;
    const Image before = reference_decode(file);
    const Image after = reference_decode(*marked);
    EXPECT_EQ(after.width, before.width) << recipe.name;
    EXPECT_TRUE(after.pixels == before.pixels) << recipe.name;
    RestartIndex index;
    EXPECT_TRUE(find_restart_segments(*marked, header, index)) << recipe.name;
  }
}

TEST(RestartIndex, AddedMarkersKeepTheOthers) {
  const auto plain = write_jpeg({.width = 80, .height = 40, .color = JpegColor::cmyk});
  const auto with_last = with_segment(plain, 0xEF, "the last application's");
  const auto file = with_segment(with_segment(with_last, 0xE2, "ICC_PROFILE and so on"), 0xFE, "a comment");
  const auto marked = add_restart_markers(file);
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
  EXPECT_FALSE(add_restart_markers(progressive).has_value());
  EXPECT_FALSE(add_restart_markers(write_jpeg({.scans = JpegScans::separate})).has_value());
  EXPECT_FALSE(add_restart_markers(write_jpeg({.arithmetic = true})).has_value());
  const auto marked = add_restart_markers(write_jpeg({.width = 128}));
  ASSERT_TRUE(marked.has_value());
  EXPECT_FALSE(add_restart_markers(*marked).has_value());
}

// Rows of 16 MCUs.
TEST(RestartIndex, CutsSegmentsOfMoreThanEightMcusAnew) {
  EXPECT_FALSE(add_restart_markers(write_jpeg({.width = 128, .restart_interval = 8})).has_value());
  const auto marked = add_restart_markers(write_jpeg({.width = 128, .restart_interval = 16}));
  ASSERT_TRUE(marked.has_value());
  EXPECT_EQ(parse_jpeg_header(*marked, "file").restart_interval, 4);
}

TEST(RestartIndex, LeavesAFileWithDamagedPlacesAsItIs) {
  auto file = write_jpeg({.width = 208, .luma = {2, 2}, .restart_interval = 3});  // 13 MCUs a row
  ASSERT_TRUE(add_restart_markers(file).has_value());
  const auto scan = file.begin() + static_cast<std::ptrdiff_t>(parse_jpeg_header(file, "file").scan_offset);
  const std::vector<std::byte> marker{std::byte{0xFF}, std::byte{0xD0}};
  // The first three MCUs lose all their data.
  file.erase(scan, std::search(scan, file.end(), marker.begin(), marker.end()));
  EXPECT_FALSE(add_restart_markers(file).has_value());
}

TEST(RestartIndex, RefusesDamagedFilesAndOddOptions) {
  const auto file = write_jpeg({.width = 128, .height = 96});
  const std::vector<std::byte> half(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(file.size() / 2));
  EXPECT_THAT(message_of<EnvironmentError>([&] { add_restart_markers(half, {.name = "cat.jpg"}); }),
              HasSubstr("JPEG 'cat.jpg'"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { add_restart_markers(file, {.maximum_pixels = 100}); }),
              HasSubstr("at most 100"));
  EXPECT_THAT(message_of<UsageError>([&] { add_restart_markers(file, {.interval = 3}); }), HasSubstr("interval is 3"));
  EXPECT_THAT(message_of<UsageError>([&] { add_restart_markers(file, {.interval = 9}); }), HasSubstr("interval is 9"));
}

// Segments found are those that a search for markers, byte by byte, finds.
TEST(RestartIndex, FindsEverySegment) {
  const auto file = write_jpeg({.width = 160, .height = 90, .luma = {2, 2}, .restart_interval = 5, .quality = 98});
  const JpegHeader header = parse_jpeg_header(file, "file");
  RestartIndex index;
  ASSERT_TRUE(find_restart_segments(file, header, index));
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
  RestartIndex index;
  ASSERT_TRUE(find_restart_segments(file, header, index));
  auto wanted = index.starts;
  for (std::size_t i = 1; i < wanted.size(); ++i) wanted[i] += 2;
  auto filled = file;
  filled.insert(filled.begin() + static_cast<std::ptrdiff_t>(index.starts[1]) - 2, 2, std::byte{0xFF});
  ASSERT_TRUE(find_restart_segments(filled, header, index));
  EXPECT_EQ(index.starts, wanted);
}

TEST(RestartIndex, FindsNothingWhereMarkersAreAbsentOrOutOfPlace) {
  RestartIndex index;
  const auto find = [&](const std::vector<std::byte>& file) {
    return find_restart_segments(file, parse_jpeg_header(file, "file"), index);
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
  RestartIndex other;
  EXPECT_FALSE(find_restart_segments(file, of_twelve_bits, other));
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

}  // namespace
}  // namespace libtrain::data
