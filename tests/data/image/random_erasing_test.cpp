#include <libtrain/data/image/random_erasing.hpp>

#include <bit>
#include <cmath>
#include <optional>
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

constexpr int kErasures = 20000;

// Of a large picture, so that rounding hardly matters, and one that is not square.
TEST(RandomErasing, DrawsAreasRatiosAndPlacesAsPublished) {
  constexpr int kWidth = 4000;
  constexpr int kHeight = 3800;
  SampleRandom random(8, 9, 10);
  std::vector<double> shares, log_ratios, columns, rows;
  for (int i = 0; i < kErasures; ++i) {
    const auto area = draw_random_erasing(kWidth, kHeight, {.probability = 0.25}, random);
    if (!area) continue;
    ASSERT_TRUE(area->x >= 0 && area->y >= 0 && area->x + area->width <= kWidth && area->y + area->height <= kHeight);
    shares.push_back(static_cast<double>(area->width) * area->height / kWidth / kHeight);
    log_ratios.push_back(std::log(static_cast<double>(area->height) / area->width));
    columns.push_back(static_cast<double>(area->x) / (kWidth - area->width));
    rows.push_back(static_cast<double>(area->y) / (kHeight - area->height));
  }
  EXPECT_NEAR(static_cast<double>(shares.size()), kErasures / 4.0, 5 * std::sqrt(kErasures * 0.25 * 0.75));
  // One percent of the draws at most is wider or higher than the picture and repeated, which moves the distributions by
  // so much.
  const double most = 2.69 + 0.01 * std::sqrt(static_cast<double>(shares.size()));
  EXPECT_LT(distance(shares, uniform_over(0.02, 0.33)), most);
  EXPECT_LT(distance(log_ratios, uniform_over(std::log(0.3), std::log(3.3))), most);
  EXPECT_LT(distance(columns, uniform_over(0, 1)), most);
  EXPECT_LT(distance(rows, uniform_over(0, 1)), most);
}

TEST(RandomErasing, LeavesPicturesAloneThatNothingFits) {
  SampleRandom random(0, 0, 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(draw_random_erasing(1, 1, {.probability = 1, .scale = {1, 1}}, random).has_value());
    EXPECT_FALSE(draw_random_erasing(100, 100, {.probability = 0}, random).has_value());
    EXPECT_TRUE(
        draw_random_erasing(100, 100, {.probability = 1, .scale = {0.1, 0.2}, .ratio = {1, 1}}, random).has_value());
  }
}

// Of a square picture: a rectangle of so many pixels at that ratio of height to width.
std::optional<Crop> rectangle(int side, double pixels, double ratio, SampleRandom& random) {
  const double share = pixels / (side * side);
  return draw_random_erasing(side, side, {.probability = 1, .scale = {share, share}, .ratio = {ratio, ratio}}, random);
}

TEST(RandomErasing, TakesTheRatioOfHeightToWidthAndRoundsHalfToEven) {
  SampleRandom random(1, 2, 3);
  const auto size = [&](double pixels, double ratio) {
    const auto area = rectangle(16, pixels, ratio, random);
    return area ? std::pair{area->width, area->height} : std::pair{-1, -1};
  };
  EXPECT_EQ(size(8, 2), (std::pair{2, 4}));
  EXPECT_EQ(size(8, 0.5), (std::pair{4, 2}));
  EXPECT_EQ(size(6.25, 1), (std::pair{2, 2}));   // sides of 2.5
  EXPECT_EQ(size(12.25, 1), (std::pair{4, 4}));  // of 3.5
}

TEST(RandomErasing, IsNeverAsWideOrAsHighAsThePictureAndReachesEveryPlace) {
  SampleRandom random(1, 2, 3);
  std::set<std::pair<int, int>> places;
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(rectangle(10, 50, 2, random).has_value());    // 10 rows of 5
    EXPECT_FALSE(rectangle(10, 50, 0.5, random).has_value());  // 5 rows of 10
    const auto area = rectangle(10, 81, 1, random);
    ASSERT_TRUE(area.has_value());
    EXPECT_EQ(*area, (Crop{area->x, area->y, 9, 9}));
    places.emplace(area->x, area->y);
  }
  EXPECT_EQ(places, (std::set<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
}

// At a ratio of 4, a rectangle is lower than the picture where it has less than a quarter of its pixels.
TEST(RandomErasing, GivesUpAfterTenDraws) {
  SampleRandom random(1, 2, 3);
  int given_up = 0;
  for (int i = 0; i < kErasures; ++i) {
    const auto area = draw_random_erasing(10'000, 10'000, {.probability = 1, .scale = {0, 1}, .ratio = {4, 4}}, random);
    if (!area) ++given_up;
  }
  const double share = std::pow(0.75, 10);
  EXPECT_NEAR(given_up, share * kErasures, 5 * std::sqrt(share * (1 - share) * kErasures));
}

TEST(RandomErasing, WritesConstantsIntoTheRectangleAlone) {
  const RandomErasingOptions options{.constant = {1, 2, -0.5f}};
  const Crop area{2, 1, 3, 2};
  SampleRandom random(0, 0, 0);
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    std::vector<float> pixels(3 * 5 * 7, 9);
    const PixelTarget picture{.pixels = pixels.data(), .width = 7, .height = 5, .channels = 3, .layout = layout};
    erase(picture, area, options, random);
    for (int channel = 0; channel < 3; ++channel) {
      for (int y = 0; y < 5; ++y) {
        for (int x = 0; x < 7; ++x) {
          const bool inside = x >= 2 && x < 5 && y >= 1 && y < 3;
          const int index = layout == Layout::nhwc ? (y * 7 + x) * 3 + channel : (channel * 5 + y) * 7 + x;
          EXPECT_EQ(pixels[static_cast<std::size_t>(index)],
                    inside ? options.constant[static_cast<std::size_t>(channel)] : 9);
        }
      }
    }
  }
}

TEST(RandomErasing, WritesInThePicturesType) {
  const RandomErasingOptions options{.constant = {-1.5f, 0, 0}};
  SampleRandom random(0, 0, 0);
  std::vector<std::uint16_t> pixels(4);
  PixelTarget picture{.pixels = pixels.data(), .width = 2, .height = 2, .channels = 1, .type = PixelType::float16};
  erase(picture, {0, 0, 1, 2}, options, random);
  EXPECT_THAT(pixels, ::testing::ElementsAre(0xBE00, 0, 0xBE00, 0));  // -1.5 = -(1 + 512 / 1024)
  picture.type = PixelType::bfloat16;
  erase(picture, {1, 0, 1, 1}, options, random);
  EXPECT_EQ(pixels[1], std::bit_cast<std::uint32_t>(-1.5f) >> 16);
}

TEST(RandomErasing, WritesNormalNoiseOnRequest) {
  std::vector<float> pixels(100 * 100);
  const PixelTarget picture{.pixels = pixels.data(), .width = 100, .height = 100, .channels = 1};
  SampleRandom random(0, 0, 0);
  erase(picture, {0, 0, 100, 100}, {.value = ErasingValue::normal}, random);
  double sum = 0, squares = 0;
  for (const float value : pixels) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(sum / 1e4, 0, 5 / 100.0);
  EXPECT_NEAR(squares / 1e4, 1, 5 * std::sqrt(2.0) / 100);
}

TEST(RandomErasing, RefusesBytesAndPlacesOutside) {
  SampleRandom random(0, 0, 0);
  std::vector<float> pixels(16);
  PixelTarget picture{.pixels = pixels.data(), .width = 4, .height = 4, .channels = 1};
  const auto refuses = [&](const Crop& area) {
    return message_of<UsageError>([&] { erase(picture, area, {}, random); });
  };
  EXPECT_THAT(refuses({2, 0, 3, 1}), HasSubstr("(2, 0)"));
  EXPECT_THAT(refuses({0, -1, 3, 1}), HasSubstr("(0, -1)"));
  picture.type = PixelType::uint8;
  EXPECT_THAT(refuses({0, 0, 1, 1}), HasSubstr("uint8"));
  EXPECT_THAT(message_of<UsageError>([&] { draw_random_erasing(4, 4, {.probability = 2}, random); }),
              HasSubstr("probability"));
}

}  // namespace
}  // namespace libtrain::data
