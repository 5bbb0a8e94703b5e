#include <libtrain/data/image/geometry.hpp>

#include <cmath>
#include <map>
#include <set>
#include <utility>
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
  constexpr double kMax = 3;  // 2.69, and what rounding to whole pixels may add
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
  EXPECT_LT(distance(shares, uniform_over(0.1, 0.3)), kMax);
  EXPECT_LT(distance(log_ratios, uniform_over(std::log(0.5), std::log(3.0))), kMax);
  EXPECT_LT(distance(columns, uniform_over(0, 1)), kMax);
  EXPECT_LT(distance(rows, uniform_over(0, 1)), kMax);
}

// One pixel wide and as high as the image, or the other way round.
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

// At a ratio of 4, a crop is no wider than the image if it has at most a quarter of its pixels; the one in the middle
// has 10000 x 2500.
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
  EXPECT_THAT(refuses([] { resized_center_crop(10, 10, 0, 1, 1); }), HasSubstr("shorter side is 0"));
  EXPECT_THAT(refuses([] { resized_center_crop(10, 20, 200, 224, 224); }), HasSubstr("resized to 200 x 400"));
  EXPECT_THAT(refuses([] { resized_center_crop(1, 2147483647, 2, 1, 1); }), HasSubstr("4294967294"));
}

// Columns 5 to 25 and rows 8 to 25 at a quarter: 1.25 to 6.25, and 2 to 6.25.
TEST(DecodePlan, RoundsAScaledCropOutwardsAndKeepsItsPlace) {
  const detail::DecodePlan plan = detail::plan_crop({.x = 5, .y = 8, .width = 20, .height = 17}, 4);
  EXPECT_EQ(plan.scale_denominator, 4);
  EXPECT_EQ(plan.crop, (Crop{.x = 1, .y = 2, .width = 6, .height = 5}));
  ASSERT_TRUE(plan.resize.box.has_value());
  EXPECT_EQ(plan.resize.box->left, 0.25f);
  EXPECT_EQ(plan.resize.box->top, 0.0f);
  EXPECT_EQ(plan.resize.box->right, 5.25f);
  EXPECT_EQ(plan.resize.box->bottom, 4.25f);
}

TEST(DecodePlan, DecodesACropAloneWhereNothingIsScaled) {
  const Crop crop{.x = 5, .y = 8, .width = 20, .height = 17};
  const detail::DecodePlan plan = detail::plan_crop(crop, 1);
  EXPECT_EQ(plan.crop, crop);
  ASSERT_TRUE(plan.resize.box.has_value());
  EXPECT_EQ(plan.resize.box->left, 0.0f);
  EXPECT_EQ(plan.resize.box->right, 20.0f);
  EXPECT_FALSE(plan.resize.part.has_value());
}

// Half of 400 x 300 pixels, of which columns 100 to 300 and rows 76 to 226 are wanted, with the pixel that the triangle
// reads beyond, and possibly one more whose weight is 0.
TEST(DecodePlan, LeavesOutWhatTheMiddleDoesNotNeed) {
  const ResizedCrop resized{.width = 200, .height = 150, .crop = {.x = 50, .y = 38, .width = 100, .height = 75}};
  const detail::DecodePlan plan = detail::plan_resized_crop(400, 300, resized, 1);
  EXPECT_EQ(plan.crop.x, 99);
  EXPECT_EQ(plan.crop.y, 75);
  EXPECT_GE(plan.crop.width, 202);
  EXPECT_LE(plan.crop.width, 203);
  EXPECT_GE(plan.crop.height, 152);
  EXPECT_LE(plan.crop.height, 153);
}

// (2, 0) keeps its distance to the right edge of the source if the image is mirrored.
TEST(Geometry, TakesPlacesOfTheFileToTheFinishedPicture) {
  Geometry geometry{.source = {10, 20, 60, 40}, .width = 100, .height = 80};
  EXPECT_EQ(geometry.map_point(ImagePoint{10, 20}), (ImagePoint{0, 0}));
  EXPECT_EQ(geometry.map_point(ImagePoint{60, 40}), (ImagePoint{100, 80}));
  EXPECT_EQ(geometry.map_point(ImagePoint{15, 25}), (ImagePoint{10, 20}));
  EXPECT_EQ(geometry.map_box(ImageBox{0, 25, 35, 50}), (ImageBox{-20, 20, 50, 120}));
  geometry.flip = Flip::horizontal;
  EXPECT_EQ(geometry.map_point(ImagePoint{15, 25}), (ImagePoint{90, 20}));
  EXPECT_EQ(geometry.map_box(ImageBox{0, 25, 35, 50}), (ImageBox{50, 20, 120, 120}));
}

TEST(Geometry, CutsRectanglesOffAtTheBorder) {
  const Geometry geometry{.width = 100, .height = 80};
  EXPECT_EQ(geometry.clipped({-20, 20, 50, 120}), (ImageBox{0, 20, 50, 80}));
  EXPECT_EQ(geometry.clipped({110, 20, 120, 30}), (ImageBox{100, 20, 100, 30}));
}

// Sizes of torch.nn.functional.interpolate (PyTorch 2.11) with recompute_scale_factor and the scale of
// torchvision.models.detection.transform: min(800 / min(w, h), 1333 / max(w, h)).
TEST(Geometry, ResizesWholePicturesAsDetectionModels) {
  const auto expect = [](int width, int height, const ShorterSide& options, int new_width, int new_height) {
    const ResizedCrop resized = resized_whole(width, height, options);
    EXPECT_EQ(resized.width, new_width) << width << " x " << height;
    EXPECT_EQ(resized.height, new_height) << width << " x " << height;
    EXPECT_EQ(resized.crop, (Crop{0, 0, new_width, new_height}));
  };
  expect(640, 480, {}, 1066, 800);
  expect(500, 375, {}, 1066, 800);
  expect(333, 500, {}, 800, 1201);
  expect(1333, 800, {}, 1333, 800);
  expect(4000, 3000, {}, 1066, 800);
  expect(1000, 427, {}, 1333, 569);
  expect(427, 640, {.min_size = 600, .max_size = 1000}, 600, 899);
  expect(97, 101, {.min_size = 333, .max_size = 1333}, 333, 346);
  expect(2000, 301, {}, 1333, 200);
  expect(5000, 1, {.min_size = 100, .max_size = 200}, 200, 1);  // which torch refuses
}

TEST(Geometry, ScalesPicturesAtRandomAndCropsWhatIsLarger) {
  SampleRandom random(1, 2, 3);
  // 40 x 30 just fits as 80 x 60; half of it, and one and a half, of which each place has the same probability.
  const ScaleJitter half{.width = 80, .height = 100, .scale = {0.5, 0.5}};
  EXPECT_EQ(random_scaled_crop(40, 30, half, random), (ResizedCrop{40, 30, {0, 0, 40, 30}}));
  const ScaleJitter larger{.width = 80, .height = 85, .scale = {1.5, 1.5}};
  std::map<std::pair<int, int>, int> places;
  for (int i = 0; i < 9000; ++i) {
    const ResizedCrop result = random_scaled_crop(40, 30, larger, random);
    ASSERT_EQ(std::pair(result.width, result.height), std::pair(120, 90));
    ASSERT_EQ(std::pair(result.crop.width, result.crop.height), std::pair(80, 85));
    ++places[{result.crop.x, result.crop.y}];
  }
  EXPECT_EQ(places.size(), 41U * 6U);
  for (const auto& [place, count] : places) EXPECT_NEAR(count, 9000 / 246.0, 6 * 6.1);

  double sum = 0;
  for (int i = 0; i < 9000; ++i) {
    const ResizedCrop result = random_scaled_crop(1000, 500, {.width = 1000, .height = 1000}, random);
    EXPECT_GE(result.width, 100);
    EXPECT_LE(result.width, 2000);
    sum += result.width;
  }
  EXPECT_NEAR(sum / 9000, 1050, 5 * 548 / std::sqrt(9000));
  EXPECT_EQ(random_scaled_crop(1, 65535, {.scale = {0.001, 0.001}}, random).crop, (Crop{0, 0, 1, 1}));
}

TEST(Geometry, RefusesScalesThatNoPictureHas) {
  SampleRandom random(0, 0, 0);
  const auto refuses = [&](const ScaleJitter& options) {
    return message_of<UsageError>([&] { random_scaled_crop(30, 20, options, random); });
  };
  EXPECT_THAT(refuses({.width = 0}), HasSubstr("limits of 0 x 1024"));
  EXPECT_THAT(refuses({.height = 65536}), HasSubstr("1024 x 65536"));
  EXPECT_THAT(refuses({.scale = {0, 1}}), HasSubstr("ScaleJitter::scale is drawn from 0 to 1"));
  EXPECT_THAT(refuses({.scale = {2, 1}}), HasSubstr("from 2 to 1"));
  EXPECT_THAT(refuses({.scale = {1, 101}}), HasSubstr("from 1 to 101"));
  EXPECT_THAT(message_of<UsageError>([&] { random_scaled_crop(0, 20, {}, random); }), HasSubstr("0 x 20"));
}

TEST(RandomCrop, ReachesEveryPlaceOfThePaddedPictureEquallyOften) {
  constexpr int kDraws = 9000;
  SampleRandom random(1, 2, 3);
  std::map<std::pair<int, int>, int> places;
  for (int i = 0; i < kDraws; ++i) {
    const Crop crop = random_crop(5, 6, {.padding = 2}, 7, 8, random);
    ASSERT_EQ(crop.width, 7);
    ASSERT_EQ(crop.height, 8);
    ++places[{crop.x, crop.y}];
  }
  ASSERT_EQ(places.size(), 9u);  // -2, -1 or 0 in either direction
  for (const auto& [place, count] : places) {
    EXPECT_TRUE(place.first >= -2 && place.first <= 0 && place.second >= -2 && place.second <= 0);
    EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000 * 8 / 9.0));
  }
}

TEST(RandomCrop, RefusesWhatDoesNotFit) {
  SampleRandom random(0, 0, 0);
  const auto refuses = [](const auto& call) { return message_of<UsageError>([&] { call(); }); };
  EXPECT_EQ(random_crop(30, 28, {.padding = 2}, 34, 32, random), (Crop{-2, -2, 34, 32}));
  EXPECT_THAT(refuses([&] { random_crop(30, 28, {.padding = 2}, 32, 33, random); }), HasSubstr("30 x 28"));
  EXPECT_THAT(refuses([&] { random_crop(30, 28, {.padding = -1}, 3, 3, random); }), HasSubstr("padding is -1"));
}

TEST(Geometry, RefusesSizesThatNoPictureHas) {
  const auto refuses = [](const auto& call) { return message_of<UsageError>([&] { call(); }); };
  EXPECT_THAT(refuses([] { resized_whole(10, 10, {.min_size = 0}); }), HasSubstr("min_size of 0"));
  EXPECT_THAT(refuses([] { resized_whole(10, 10, {.max_size = 65536}); }), HasSubstr("max_size of 65536"));
  EXPECT_THAT(refuses([] { resized_whole(0, 10, {}); }), HasSubstr("0 x 10"));
}

}  // namespace
}  // namespace libtrain::data
