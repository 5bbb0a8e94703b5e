#include <libtrain/data/image/color_jitter.hpp>

#include <array>
#include <cmath>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/color.hpp>

#include <tests/data/image/draw_statistics.hpp>
#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using test::distance;
using test::random_picture;
using test::uniform_over;
using ::testing::HasSubstr;

TEST(ColorJitter, DrawsFactorsUniformlyAroundOne) {
  constexpr int kDraws = 20000;
  SampleRandom random(1, 2, 3);
  std::vector<double> brightness, contrast, hue;
  for (int i = 0; i < kDraws; ++i) {
    const ColorJitter jitter = draw_color_jitter({.brightness = 0.4, .contrast = 1.5, .hue = 0.1}, random);
    ASSERT_TRUE(jitter.brightness && jitter.contrast && jitter.hue);
    ASSERT_FALSE(jitter.saturation.has_value());
    ASSERT_TRUE(*jitter.brightness >= 0.6 && *jitter.brightness <= 1.4);
    ASSERT_TRUE(*jitter.contrast >= 0 && *jitter.contrast <= 2.5);
    ASSERT_TRUE(*jitter.hue >= -0.1 && *jitter.hue <= 0.1);
    brightness.push_back(*jitter.brightness);
    contrast.push_back(*jitter.contrast);
    hue.push_back(*jitter.hue);
  }
  EXPECT_LT(distance(brightness, uniform_over(0.6, 1.4)), 2.69);
  EXPECT_LT(distance(contrast, uniform_over(0, 2.5)), 2.69);
  EXPECT_LT(distance(hue, uniform_over(-0.1, 0.1)), 2.69);
}

TEST(ColorJitter, DrawsAllOrdersEquallyOften) {
  constexpr int kDraws = 24000;
  SampleRandom random(1, 2, 3);
  std::map<std::array<ColorChange, 4>, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[draw_color_jitter({}, random).order];
  ASSERT_EQ(counts.size(), 24u);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 57.1);  // the 99.99th percentile with 23 degrees of freedom
}

TEST(ColorJitter, AppliesTheChangesInTheirOrder) {
  const Image original = random_picture(12, 9, 3);
  const ColorJitter jitter{
      .order = {ColorChange::contrast, ColorChange::hue, ColorChange::brightness, ColorChange::saturation},
      .brightness = 1.6,
      .contrast = 0.5,
      .hue = 0.2};
  Image image = original;
  apply_color_jitter(jitter, image);
  Image expected = original;
  adjust_contrast(expected, 0.5);
  adjust_hue(expected, 0.2);
  adjust_brightness(expected, 1.6);
  EXPECT_EQ(image.pixels, expected.pixels);
}

TEST(ColorJitter, RefusesExtentsBeyondTheirMeaning) {
  SampleRandom random(0, 0, 0);
  const auto refuses = [&](const ColorJitterOptions& options) {
    return message_of<UsageError>([&] { draw_color_jitter(options, random); });
  };
  EXPECT_THAT(refuses({.brightness = -0.1}), HasSubstr("brightness"));
  EXPECT_THAT(refuses({.contrast = std::nan("")}), HasSubstr("contrast"));
  EXPECT_THAT(refuses({.hue = 0.6}), HasSubstr("hue"));
}

}  // namespace
}  // namespace libtrain::data
