#include <libtrain/data/image/detail/fast_scan.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/data/image/detail/jpeg.hpp>

#include <tests/data/image/decoders.hpp>
#include <tests/data/image/jpeg_writer.hpp>

namespace libtrain::data::detail {
namespace {

using libtrain::test::all_recipes;
using libtrain::test::cropped;
using libtrain::test::decode_jpeg;
using libtrain::test::JpegRecipe;
using libtrain::test::JpegScans;
using libtrain::test::reference_decode;
using libtrain::test::write_jpeg;

/// Reads all rows; returns whether FastScan took over and brought it to its end.
bool is_read_fast(const std::vector<std::byte>& file) {
  const std::string name = "file";
  JpegReader reader(file, name, 0);
  jpeg_decompress_struct& info = reader.info();
  reader.run([&] {
    jpeg_read_header(&info, TRUE);
    jpeg_start_decompress(&info);
  });
  ScanDecoder decoder;
  FastScan fast_scan(decoder);
  if (!fast_scan.take_over(reader)) return false;
  std::vector<JSAMPLE> row(std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components));
  JSAMPROW pointer = row.data();
  return reader.try_run([&] {
    while (info.output_scanline < info.output_height) jpeg_read_scanlines(&info, &pointer, 1);
  });
}

// newer_libjpeg_test.py runs this with another libjpeg than that of the build, and looks at the property.
TEST(FastScan, IsUsedWithTheLibjpegOfThisRun) {
  EXPECT_TRUE(uses_fast_scan());
  Dl_info library = {};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(jpeg_std_error), &library), 0);
  RecordProperty("libjpeg", library.dli_fname);
}

// That JpegDecoder finds the right pixels would not show it: it decodes without FastScan what this refuses.
TEST(FastScan, TakesOverSequentialHuffmanScans) {
  for (const JpegRecipe& recipe : all_recipes()) {
    const bool plain = recipe.scans == JpegScans::one && !recipe.arithmetic;
    EXPECT_EQ(is_read_fast(write_jpeg(recipe)), plain) << recipe.name;
  }
}

TEST(FastScan, LeavesDamagedScansToLibjpeg) {
  const auto whole = write_jpeg({.width = 200, .height = 150, .luma = {2, 2}});
  ASSERT_TRUE(is_read_fast(whole));
  // Zeros in the middle: a code after them, or the number of MCUs, is wrong.
  auto file = whole;
  const auto middle = file.begin() + static_cast<std::ptrdiff_t>(file.size() / 2);
  std::fill(middle, middle + 200, std::byte{0});
  EXPECT_FALSE(is_read_fast(file));
  const Image image = decode_jpeg(file, {.maximum_warnings = 1'000'000});
  EXPECT_TRUE(image.pixels == reference_decode(file).pixels) << "libjpeg says what damaged data means";
}

// The first attempt has written rows when it reaches the damage.
TEST(FastScan, TheSecondAttemptIsWholeForPartsAndScaledPicturesToo) {
  auto file = write_jpeg({.width = 200, .height = 150, .luma = {2, 2}});
  const auto late = file.end() - 400;
  std::fill(late, late + 100, std::byte{0});
  ASSERT_FALSE(is_read_fast(file));
  constexpr int kAnyDamage = 1'000'000;
  for (const int scale : {1, 4}) {
    const Image whole = reference_decode(file, scale);
    const Crop lower{.x = 6, .y = whole.height / 2, .width = whole.width - 12, .height = whole.height / 2};
    const DecodeOptions options{.scale_denominator = scale, .crop = lower, .maximum_warnings = kAnyDamage};
    JpegDecoder decoder;
    EXPECT_TRUE(decoder.decode(file, options).pixels == cropped(whole, lower).pixels) << scale;
  }
}

TEST(FastScan, ReadsTablesOfAnyNumber) {
  // Tables 2 and 3 instead of 0 and 1, as extended files may have them.
  auto file = write_jpeg({.width = 90, .height = 60});
  ASSERT_TRUE(is_read_fast(file));
  for (std::size_t i = 2; i + 4 < file.size();) {
    const auto code = std::to_integer<int>(file[i + 1]);
    const auto length =
        static_cast<std::size_t>(std::to_integer<int>(file[i + 2]) << 8 | std::to_integer<int>(file[i + 3]));
    if (code == 0xC4) file[i + 4] |= std::byte{2};
    if (code == 0xDA) {
      for (std::size_t c = 0; c < 3; ++c) file[i + 6 + 2 * c] |= std::byte{0x22};
      break;
    }
    i += 2 + length;
  }
  const Image image = decode_jpeg(file, {.maximum_warnings = 0});
  EXPECT_TRUE(image.pixels == reference_decode(file).pixels);
  EXPECT_TRUE(is_read_fast(file));
}

}  // namespace
}  // namespace libtrain::data::detail
