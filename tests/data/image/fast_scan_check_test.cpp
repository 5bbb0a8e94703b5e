#include <libtrain/data/image/fast_scan_check.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/support/log_sinks.hpp>

namespace libtrain::data::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::optional<Image> decode(std::span<const std::byte> file, const DecodeOptions& options) {
  const Image whole = libtrain::test::reference_decode(file, options.scale_denominator);
  return options.crop ? libtrain::test::cropped(whole, *options.crop) : whole;
}

using Flaw = std::function<void(const DecodeOptions& options, std::optional<Image>& image)>;

bool is_accepted(const Flaw& flaw) {
  const libtrain::test::CapturedLog log;
  const bool accepted = check_fast_scan(
      [&](std::span<const std::byte> file, const DecodeOptions& options) {
        auto image = decode(file, options);
        flaw(options, image);
        return image;
      },
      decode);
  if (accepted) {
    EXPECT_THAT(log.lines(), IsEmpty());
  } else {
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("warning: ")));
  }
  return accepted;
}

TEST(FastScanCheck, AcceptsEqualPixels) {
  EXPECT_TRUE(is_accepted([](const DecodeOptions&, std::optional<Image>&) {}));
}

TEST(FastScanCheck, FindsAWrongPixelInEveryKindOfPicture) {
  for (const int scale : {1, 2}) {
    for (const bool in_part : {false, true}) {
      bool met = false;
      EXPECT_FALSE(is_accepted([&](const DecodeOptions& options, std::optional<Image>& image) {
        if (options.scale_denominator != scale || options.crop.has_value() != in_part) return;
        image->pixels.back() ^= 1;
        met = true;
      }));
      EXPECT_TRUE(met) << scale << in_part;
    }
  }
}

TEST(FastScanCheck, DoesNotAcceptARefusal) {
  EXPECT_FALSE(is_accepted([](const DecodeOptions&, std::optional<Image>& image) { image.reset(); }));
}

// Columns of MCUs that are left out by mistake are to show, whichever they are.
TEST(FastScanCheck, HasPartsWithSeveralColumnsOfMcusInThemAndBesideThem) {
  constexpr int kMcu = 16;
  int parts = 0;
  EXPECT_TRUE(is_accepted([&](const DecodeOptions& options, std::optional<Image>&) {
    if (!options.crop || options.scale_denominator != 1) return;
    EXPECT_GE(options.crop->x, 2 * kMcu);
    EXPECT_GE(options.crop->y, 2 * kMcu);
    EXPECT_NE(options.crop->x / kMcu, (options.crop->x + options.crop->width - 1) / kMcu);
    ++parts;
  }));
  EXPECT_GE(parts, 3);
}

}  // namespace
}  // namespace libtrain::data::detail
