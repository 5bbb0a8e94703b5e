#include <libtrain/data/image/detail/mixup.hpp>

#include <cmath>
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
using test::mean;
using test::variance;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Mixup, MixesEachSampleWithTheOneBefore) {
  std::vector<float> samples{0, 4, 100, 200, 40, 80};
  detail::mixup(samples, 3, 0.75);
  EXPECT_THAT(samples, ElementsAre(10, 23, 75, 151, 55, 110));
}

TEST(Mixup, LeavesASingleSampleAsItIs) {
  std::vector<float> samples{1, 2, 3};
  detail::mixup(samples, 1, 0.25);
  EXPECT_THAT(samples, ElementsAre(1, 2, 3));
}

TEST(Mixup, AtTheEndsKeepsOrTakesAll) {
  std::vector<float> samples{1, 2, 3};
  detail::mixup(samples, 3, 1);
  EXPECT_THAT(samples, ElementsAre(1, 2, 3));
  detail::mixup(samples, 3, 0);
  EXPECT_THAT(samples, ElementsAre(3, 1, 2));
}

TEST(Mixup, MixesLabelsLikeTheirSamples) {
  const std::vector<std::int64_t> labels{2, 0, 0};
  std::vector<float> targets(9, 5);
  detail::mix_labels(labels, 3, 0.75, targets);
  EXPECT_THAT(targets, ElementsAre(0.25, 0, 0.75,  //
                                   0.75, 0, 0.25,  //
                                   1, 0, 0));
}

// The variance of Beta(0.2, 0.2) is 1 / 5.6; 5 standard errors, as random_draws_test.cpp explains them.
TEST(Mixup, DrawsSharesOfASymmetricBetaDistribution) {
  SampleRandom random(1, 2, 3);
  std::vector<double> shares;
  for (int i = 0; i < 20000; ++i) shares.push_back(detail::draw_mixup(0.2, random));
  EXPECT_NEAR(mean(shares), 0.5, 5 * std::sqrt(1 / 5.6 / 20000));
  EXPECT_NEAR(variance(shares), 1 / 5.6, 5 / 5.6 * std::sqrt(2.0 / 20000));
}

TEST(Mixup, RefusesWhatDoesNotFit) {
  std::vector<float> samples(6);
  const std::vector<std::int64_t> labels{0, 3};
  const auto refuses = [](const auto& call) { return message_of<UsageError>([&] { call(); }); };
  EXPECT_THAT(refuses([&] { detail::mixup(samples, 4, 0.5); }), HasSubstr("batch of 4"));
  EXPECT_THAT(refuses([&] { detail::mixup(samples, 0, 0.5); }), HasSubstr("batch of 0"));
  EXPECT_THAT(refuses([&] { detail::mixup(samples, 3, 1.5); }), HasSubstr("1.5"));
  EXPECT_THAT(refuses([&] { detail::mixup(samples, 3, std::nan("")); }), HasSubstr("nan"));
  EXPECT_THAT(refuses([&] { detail::mixup(samples, 3, -0.25); }), HasSubstr("-0.25"));
  EXPECT_THAT(refuses([&] { detail::mix_labels(labels, 4, 1.25, samples); }), HasSubstr("1.25"));
  EXPECT_THAT(refuses([&] { detail::mix_labels(labels, 3, 0.5, samples); }), HasSubstr("label to mix is 3"));
  EXPECT_THAT(refuses([&] { detail::mix_labels(labels, 4, 0.5, samples); }), HasSubstr("6 elements"));
}

// Element e of image i is 1000 i + e.
std::vector<float> numbered(const detail::BatchShape& shape) {
  const std::size_t elements = shape.channels * shape.height * shape.width;
  std::vector<float> pictures(shape.batch * elements);
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    pictures[i] = static_cast<float>(1000 * (i / elements) + i % elements);
  }
  return pictures;
}

TEST(CutMix, TakesTheRectangleFromThePictureBefore) {
  const Crop box{1, 2, 3, 2};
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    for (const std::size_t batch : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
      const detail::BatchShape shape{.batch = batch, .channels = 3, .height = 5, .width = 7, .layout = layout};
      auto pictures = numbered(shape);
      detail::cutmix(pictures, shape, box);
      for (std::size_t i = 0; i < pictures.size(); ++i) {
        const std::size_t element = i % 105;
        const std::size_t place = layout == Layout::nhwc ? element / 3 : element % 35;
        const std::size_t x = place % 7;
        const std::size_t y = place / 7;
        const bool inside = x >= 1 && x < 4 && y >= 2 && y < 4;
        const std::size_t picture = inside ? (i / 105 + batch - 1) % batch : i / 105;
        ASSERT_EQ(pictures[i], static_cast<float>(1000 * picture + element)) << batch << " " << i;
      }
    }
  }
}

TEST(CutMix, AnEmptyRectangleChangesNothing) {
  const detail::BatchShape shape{.batch = 2, .channels = 1, .height = 2, .width = 2};
  auto pictures = numbered(shape);
  detail::cutmix(pictures, shape, {2, 2, 0, 0});
  EXPECT_EQ(pictures, numbered(shape));
}

// The share kept is 1 less the rectangle's area. With l uniform, the rectangle before it is cut off has an area of
// 1 - l in the middle of an unbounded plane; over the place of its centre in a unit square, a side of s keeps
// s - s^2 / 4 on average, so that the area expected is the integral of (s - s^2 / 4)^2 over s^2 uniform: 1/2 - 1/5 +
// 1/48.
TEST(CutMix, DrawsRectanglesCutOffAtTheBorder) {
  constexpr int kDraws = 20000;
  constexpr int kWidth = 2000;
  constexpr int kHeight = 1500;
  SampleRandom random(4, 5, 6);
  double area = 0, middle_x = 0, middle_y = 0;
  for (int i = 0; i < kDraws; ++i) {
    const detail::CutMix drawn = detail::draw_cutmix(kWidth, kHeight, 1.0, random);
    const Crop& box = drawn.box;
    ASSERT_TRUE(box.x >= 0 && box.y >= 0 && box.width >= 0 && box.height >= 0);
    ASSERT_TRUE(box.x + box.width <= kWidth && box.y + box.height <= kHeight);
    const double share = static_cast<double>(box.width) * box.height / kWidth / kHeight;
    ASSERT_NEAR(drawn.lambda, 1 - share, 1e-12);
    area += share;
    middle_x += (box.x + box.width / 2.0) / kWidth;
    middle_y += (box.y + box.height / 2.0) / kHeight;
  }
  // Areas and positions are between 0 and 1: their standard deviations are below 1/2.
  EXPECT_NEAR(area / kDraws, 0.5 - 0.2 + 1.0 / 48, 5 * 0.5 / std::sqrt(kDraws) + 0.001);
  EXPECT_NEAR(middle_x / kDraws, 0.5, 5 * 0.5 / std::sqrt(kDraws) + 0.001);
  EXPECT_NEAR(middle_y / kDraws, 0.5, 5 * 0.5 / std::sqrt(kDraws) + 0.001);
}

// Half a side of 3 is 1.5 sqrt(1 - l), rounded down: 1 if l, which is uniform, is at most 5/9, otherwise 0. The centre
// is any of the pixels.
TEST(CutMix, RoundsHalfSidesDownAndCentresThemOnAPixel) {
  constexpr int kDraws = 9000;
  SampleRandom random(4, 5, 6);
  std::set<std::pair<int, int>> columns, rows;
  int empty = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Crop box = detail::draw_cutmix(3, 3, 1.0, random).box;
    if (box.width == 0) {
      ++empty;
      continue;
    }
    columns.emplace(box.x, box.width);
    rows.emplace(box.y, box.height);
  }
  const std::set<std::pair<int, int>> around_a_pixel{{0, 1}, {0, 2}, {1, 2}};
  EXPECT_EQ(columns, around_a_pixel);
  EXPECT_EQ(rows, around_a_pixel);
  EXPECT_NEAR(empty, kDraws * 4 / 9.0, 5 * std::sqrt(kDraws * 4 / 9.0 * 5 / 9.0));
}

TEST(CutMix, RefusesWhatDoesNotFit) {
  const detail::BatchShape shape{.batch = 2, .channels = 1, .height = 4, .width = 4};
  std::vector<float> pictures(32);
  SampleRandom random(0, 0, 0);
  const auto refuses = [](const auto& call) { return message_of<UsageError>([&] { call(); }); };
  EXPECT_THAT(refuses([&] { detail::cutmix(std::span(pictures).first(31), shape, {}); }), HasSubstr("31"));
  EXPECT_THAT(refuses([&] { detail::cutmix(pictures, shape, {2, 0, 3, 1}); }), HasSubstr("(2, 0)"));
  EXPECT_THAT(refuses([&] { detail::cutmix(pictures, shape, {0, -1, 1, 1}); }), HasSubstr("(0, -1)"));
  EXPECT_THAT(refuses([&] { detail::draw_cutmix(0, 4, 1, random); }), HasSubstr("0 x 4"));
  EXPECT_THAT(refuses([&] { detail::draw_cutmix(4, 4, 0, random); }), HasSubstr("shape"));
}

}  // namespace

}  // namespace libtrain::data
