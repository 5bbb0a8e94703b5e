#include <libtrain/data/image/crop_policy.hpp>

#include <cmath>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/image/draw_statistics.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using test::distance;
using test::uniform_over;
using ::testing::HasSubstr;

// Golden values: tests/data/image/make_torchvision_golden.py, with torchvision 0.26.0.
TEST(CropPolicy, ResizesAndCropsTheCentreAsTorchvision) {
  const auto expect = [](const ResizedCrop& actual, int width, int height, int x, int y) {
    EXPECT_EQ(actual.width, width);
    EXPECT_EQ(actual.height, height);
    EXPECT_EQ(actual.crop.x, x);
    EXPECT_EQ(actual.crop.y, y);
  };
  expect(resized_center_crop(500, 375, 256, 224, 224), 341, 256, 58, 16);
  expect(resized_center_crop(375, 500, 256, 224, 224), 256, 341, 16, 58);
  expect(resized_center_crop(333, 500, 232, 224, 224), 232, 348, 4, 62);
  expect(resized_center_crop(1024, 681, 257, 224, 200), 386, 257, 81, 28);
  expect(resized_center_crop(640, 480, 480, 640, 33), 640, 480, 0, 224);
  expect(resized_center_crop(7, 3, 100, 99, 98), 233, 100, 67, 1);
}

// Golden values as above.
TEST(CropPolicy, TakesTheLargestCropInTheMiddleWhereNoDrawFits) {
  SampleRandom random(1, 2, 3);
  const RandomResizedCropOptions options{.scale = {1, 1}};
  EXPECT_EQ(random_resized_crop(1000, 10, options, random), (Crop{493, 0, 13, 10}));
  EXPECT_EQ(random_resized_crop(10, 1000, options, random), (Crop{0, 493, 10, 13}));
  EXPECT_EQ(random_resized_crop(101, 9, options, random), (Crop{44, 0, 12, 9}));
  EXPECT_EQ(random_resized_crop(9, 100, options, random), (Crop{0, 44, 9, 12}));
}

// So small a scale that every draw fits: pillow_resize_test.py compares the defaults with torchvision's.
TEST(CropPolicy, DrawsAreasRatiosAndPlacesUniformly) {
  constexpr int kDraws = 20000;
  constexpr int kWidth = 3000;
  constexpr int kHeight = 2900;
  constexpr double kMost = 3;  // 2.69, and what rounding to whole pixels may add
  SampleRandom random(4, 5, 6);
  std::vector<double> shares, log_ratios, columns, rows;
  for (int i = 0; i < kDraws; ++i) {
    const Crop crop = random_resized_crop(kWidth, kHeight, {.scale = {0.1, 0.3}, .ratio = {0.5, 3}}, random);
    ASSERT_TRUE(crop.x >= 0 && crop.y >= 0 && crop.x + crop.width <= kWidth && crop.y + crop.height <= kHeight);
    shares.push_back(static_cast<double>(crop.width) * crop.height / kWidth / kHeight);
    log_ratios.push_back(std::log(static_cast<double>(crop.width) / crop.height));
    columns.push_back(static_cast<double>(crop.x) / (kWidth - crop.width));
    rows.push_back(static_cast<double>(crop.y) / (kHeight - crop.height));
  }
  EXPECT_LT(distance(shares, uniform_over(0.1, 0.3)), kMost);
  EXPECT_LT(distance(log_ratios, uniform_over(std::log(0.5), std::log(3.0))), kMost);
  EXPECT_LT(distance(columns, uniform_over(0, 1)), kMost);
  EXPECT_LT(distance(rows, uniform_over(0, 1)), kMost);
}

// One pixel wide and as high as the picture, or the other way round.
TEST(CropPolicy, MayBeAsHighOrAsWideAsThePictureAndReachesEveryPlace) {
  SampleRandom random(1, 2, 3);
  std::set<int> columns, rows;
  for (int i = 0; i < 300; ++i) {
    const Crop high = random_resized_crop(10, 10, {.scale = {0.1, 0.1}, .ratio = {0.1, 0.1}}, random);
    const Crop wide = random_resized_crop(10, 10, {.scale = {0.1, 0.1}, .ratio = {10, 10}}, random);
    ASSERT_EQ(high, (Crop{high.x, 0, 1, 10}));
    ASSERT_EQ(wide, (Crop{0, wide.y, 10, 1}));
    columns.insert(high.x);
    rows.insert(wide.y);
  }
  const std::set<int> all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(columns, all);
  EXPECT_EQ(rows, all);
}

TEST(CropPolicy, RoundsHalfToEven) {
  SampleRandom random(1, 2, 3);
  const auto square = [&](double pixels) {
    return random_resized_crop(16, 16, {.scale = {pixels / 256, pixels / 256}, .ratio = {1, 1}}, random);
  };
  EXPECT_EQ(square(6.25).width, 2);  // 2.5
  EXPECT_EQ(square(6.25).height, 2);
  EXPECT_EQ(square(12.25).width, 4);  // 3.5
  EXPECT_EQ(square(12.25).height, 4);
}

// At a ratio of 4, a crop is no wider than the picture where it has at most a quarter of its pixels; the one in the
// middle has 10000 x 2500.
TEST(CropPolicy, GivesUpAfterTenDraws) {
  constexpr int kDraws = 20000;
  SampleRandom random(1, 2, 3);
  int given_up = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Crop crop = random_resized_crop(10'000, 10'000, {.scale = {1e-6, 1}, .ratio = {4, 4}}, random);
    if (crop == Crop{0, 3750, 10'000, 2500}) ++given_up;
  }
  const double share = std::pow(0.75, 10);
  EXPECT_NEAR(given_up, share * kDraws, 5 * std::sqrt(share * (1 - share) * kDraws));
}

TEST(CropPolicy, CropsTheSmallestPicture) {
  SampleRandom random(0, 0, 0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random_resized_crop(1, 1, {}, random), (Crop{0, 0, 1, 1}));
}

TEST(CropPolicy, RefusesWhatHasNoCrop) {
  SampleRandom random(0, 0, 0);
  const auto refuses = [](const auto& call) { return message_of<UsageError>([&] { call(); }); };
  EXPECT_THAT(refuses([&] { random_resized_crop(0, 5, {}, random); }), HasSubstr("0 x 5"));
  EXPECT_THAT(refuses([&] { random_resized_crop(5, 5, {.scale = {0, 1}}, random); }), HasSubstr("area of a crop"));
  EXPECT_THAT(refuses([&] { random_resized_crop(5, 5, {.scale = {0.5, 1.1}}, random); }), HasSubstr("1.1"));
  EXPECT_THAT(refuses([&] { random_resized_crop(5, 5, {.ratio = {-1, 1}}, random); }), HasSubstr("ratio of a crop"));
  EXPECT_THAT(refuses([] { resized_center_crop(10, 10, 0, 1, 1); }), HasSubstr("shorter side of 0"));
  EXPECT_THAT(refuses([] { resized_center_crop(10, 20, 200, 224, 224); }), HasSubstr("resized to 200 x 400"));
  EXPECT_THAT(refuses([] { resized_center_crop(1, 2147483647, 2, 1, 1); }), HasSubstr("4294967294"));
}

}  // namespace
}  // namespace libtrain::data
