// Values computed by hand from Pillow's formulas; pillow_resize_test.py compares whole images with Pillow.

#include <libtrain/data/image/detail/color.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/image/pictures.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using test::constant_picture;
using test::pixel;
using test::random_picture;
using test::row_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Color, BrightnessScalesRoundsDownAndCutsOff) {
  Image image = row_of(1, {0, 1, 100, 200, 255});
  detail::adjust_brightness(image, 1.5);
  EXPECT_THAT(image.pixels, ElementsAre(0, 1, 150, 255, 255));
  detail::adjust_brightness(image, 0);
  EXPECT_THAT(image.pixels, ElementsAre(0, 0, 0, 0, 0));
}

TEST(Color, ContrastMovesAwayFromTheRoundedMeanOfTheGrey) {
  Image image = row_of(1, {10, 20, 41});  // mean 23.67, so 24
  detail::adjust_contrast(image, 2);
  EXPECT_THAT(image.pixels, ElementsAre(0, 16, 58));  // -4, 16, 58
  image = row_of(1, {10, 20, 41});
  detail::adjust_contrast(image, 0);
  EXPECT_THAT(image.pixels, ElementsAre(24, 24, 24));
}

// Red 255 is grey (255 * 19595 + 32768) / 65536 = 76.7, rounded down; 150 of green 88.5; blue 29.5; red 2 1.1.
TEST(Color, SaturationMovesAwayFromThePixelsOwnGrey) {
  Image image = row_of(3, {255, 0, 0, 0, 150, 0, 0, 0, 255, 2, 0, 0});
  detail::adjust_saturation(image, 0);
  EXPECT_THAT(image.pixels, ElementsAre(76, 76, 76, 88, 88, 88, 29, 29, 29, 1, 1, 1));
  image = row_of(3, {255, 0, 0});
  detail::adjust_saturation(image, 0.5);
  EXPECT_THAT(image.pixels, ElementsAre(165, 38, 38));  // 76 + 89.5, 76 - 38
  image = row_of(1, {3, 99});
  detail::adjust_saturation(image, 0);
  EXPECT_THAT(image.pixels, ElementsAre(3, 99));
}

// 1 * 19595 + 53 * 38470 + 185 * 7471 is half of 65536 above 52 * 65536, and 1 * 19595 + 63 * 38470 + 230 * 7471 one
// less than half above 63 * 65536.
TEST(Color, GreyIsRoundedInFixedPointToTheLastBit) {
  Image image = row_of(3, {1, 53, 185, 1, 63, 230});
  detail::adjust_saturation(image, 0);
  EXPECT_THAT(image.pixels, ElementsAre(53, 53, 53, 63, 63, 63));
}

TEST(Color, SharpnessSmoothsInsideOfTheBorder) {
  Image image = constant_picture(3, 3, 1, 0);
  image.row(1)[1] = 130;
  Image smooth = image;
  detail::adjust_sharpness(smooth, 0);
  EXPECT_THAT(smooth.pixels, ElementsAre(0, 0, 0, 0, 50, 0, 0, 0, 0));  // 5/13 of 130
  detail::adjust_sharpness(image, 1.5);
  EXPECT_EQ(pixel(image, 1, 1), 170);  // 50 + 1.5 * 80
  Image corner = constant_picture(3, 3, 1, 0);
  corner.row(0)[0] = 8;
  detail::adjust_sharpness(corner, 0);
  EXPECT_THAT(corner.pixels, ElementsAre(8, 0, 0, 0, 1, 0, 0, 0, 0));  // 8/13, rounded
  Image narrow = random_picture(2, 9, 3);
  const auto before = narrow.pixels;
  detail::adjust_sharpness(narrow, 0);
  EXPECT_EQ(narrow.pixels, before);
}

TEST(Color, FactorOneChangesNothing) {
  const Image original = random_picture(20, 10, 3);
  Image image = original;
  detail::adjust_brightness(image, 1);
  detail::adjust_contrast(image, 1);
  detail::adjust_saturation(image, 1);
  detail::adjust_sharpness(image, 1);
  EXPECT_EQ(image.pixels, original.pixels);
}

// A third of the circle is 85 of 255 steps: red, green and blue change places.
TEST(Color, HueTurnsPureColours) {
  Image image = row_of(3, {255, 0, 0, 0, 255, 0, 40, 40, 40});
  detail::adjust_hue(image, 85.9 / 255);  // steps are rounded towards zero
  EXPECT_THAT(image.pixels, ElementsAre(0, 255, 0, 0, 0, 255, 40, 40, 40));
  image = row_of(3, {0, 255, 0});
  detail::adjust_hue(image, -85.9 / 255);
  EXPECT_THAT(image.pixels, ElementsAre(255, 0, 0));
  image = row_of(1, {7, 8});
  detail::adjust_hue(image, 0.3);
  EXPECT_THAT(image.pixels, ElementsAre(7, 8));
}

TEST(Color, TablesChangeEveryByteAlike) {
  Image image = row_of(1, {255, 155, 127, 0});
  detail::solarize(image, 127.5);
  EXPECT_THAT(image.pixels, ElementsAre(0, 100, 127, 0));
  image = row_of(1, {0, 100, 128, 255});
  detail::posterize(image, 2);
  EXPECT_THAT(image.pixels, ElementsAre(0, 64, 128, 192));
  image = row_of(1, {77});
  detail::posterize(image, 8);
  EXPECT_THAT(image.pixels, ElementsAre(77));
}

TEST(Color, SolarizeInvertsTheThresholdItself) {
  Image image = row_of(1, {9, 10, 11});
  detail::solarize(image, 10);
  EXPECT_THAT(image.pixels, ElementsAre(9, 245, 244));
  detail::solarize(image, 256);
  EXPECT_THAT(image.pixels, ElementsAre(9, 245, 244));
}

TEST(Color, AutocontrastStretchesEachChannelByItself) {
  Image image = row_of(3, {10, 50, 7, 20, 50, 7, 30, 101, 7});
  detail::autocontrast(image);
  EXPECT_THAT(image.pixels, ElementsAre(0, 0, 7, 127, 0, 7, 255, 255, 7));
}

// 1200 pixels of four values: without those of the largest, 900 pixels over 255 results make a step of 3; a result is
// half a step, rounded down, and the number of pixels below, divided by the step and rounded down: (1 + 299) / 3 = 100,
// (1 + 599) / 3 = 200, and 901 / 3 cut off at 255.
TEST(Color, EqualizeRoundsByHalfAStep) {
  Image image = constant_picture(1200, 1, 1, 0);
  for (int x = 0; x < 1200; ++x) {
    image.row(0)[x] = static_cast<std::uint8_t>(x < 299 ? 60 : x < 599 ? 70 : x < 900 ? 80 : 90);
  }
  detail::equalize(image);
  EXPECT_EQ(pixel(image, 0, 0), 0);
  EXPECT_EQ(pixel(image, 299, 0), 100);
  EXPECT_EQ(pixel(image, 599, 0), 200);
  EXPECT_EQ(pixel(image, 1199, 0), 255);
}

// 510 pixels of four values: without those of the largest, 383 pixels over 255 results make a step of 1, so that the
// number of pixels below a value is its result: 0, 127, 255, and 383 cut off at 255.
TEST(Color, EqualizeSpreadsByWhatLiesBelow) {
  Image image = constant_picture(510, 1, 1, 0);
  for (int x = 0; x < 510; ++x)
    image.row(0)[x] = static_cast<std::uint8_t>(x < 127 ? 60 : x < 255 ? 70 : x < 383 ? 80 : 90);
  detail::equalize(image);
  EXPECT_EQ(pixel(image, 0, 0), 0);
  EXPECT_EQ(pixel(image, 127, 0), 127);
  EXPECT_EQ(pixel(image, 255, 0), 255);
  EXPECT_EQ(pixel(image, 509, 0), 255);
}

TEST(Color, EqualizeLeavesSmallOrConstantPicturesAlone) {
  const Image small = random_picture(10, 10, 3);
  Image image = small;
  detail::equalize(image);
  EXPECT_EQ(image.pixels, small.pixels);
  const Image constant = constant_picture(40, 40, 1, 9);
  image = constant;
  detail::equalize(image);
  EXPECT_EQ(image.pixels, constant.pixels);
  detail::autocontrast(image);
  EXPECT_EQ(image.pixels, constant.pixels);
}

TEST(Color, RefusesFactorsAndPicturesItHasNoMeaningFor) {
  Image image = constant_picture(2, 2, 3, 0);
  const auto refuses = [&](const auto& change) { return message_of<UsageError>([&] { change(); }); };
  EXPECT_THAT(refuses([&] { detail::adjust_brightness(image, -0.1); }), HasSubstr("brightness is -0.1"));
  EXPECT_THAT(refuses([&] { detail::adjust_contrast(image, std::nan("")); }), HasSubstr("contrast is nan"));
  EXPECT_THAT(refuses([&] { detail::adjust_sharpness(image, std::numeric_limits<double>::infinity()); }),
              HasSubstr("inf"));
  EXPECT_THAT(refuses([&] { detail::adjust_hue(image, 0.51); }), HasSubstr("0.51"));
  EXPECT_THAT(refuses([&] { detail::posterize(image, 0); }), HasSubstr("0 bits"));
  EXPECT_THAT(refuses([&] { detail::posterize(image, 9); }), HasSubstr("9 bits"));
  Image empty;
  EXPECT_THAT(refuses([&] { detail::solarize(empty, 0); }), HasSubstr("0 x 0"));
  Image short_of_bytes{.width = 2, .height = 2, .channels = 1, .pixels = {1, 2, 3}};
  EXPECT_THAT(refuses([&] { detail::equalize(short_of_bytes); }), HasSubstr("3 bytes"));
  short_of_bytes.channels = 4;
  EXPECT_THAT(refuses([&] { detail::autocontrast(short_of_bytes); }), HasSubstr("4 channels"));
}

}  // namespace
}  // namespace libtrain::data
