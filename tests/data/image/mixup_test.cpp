#include <libtrain/data/image/mixup.hpp>

#include <cmath>
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
  mixup(samples, 3, 0.75);
  EXPECT_THAT(samples, ElementsAre(10, 23, 75, 151, 55, 110));
}

TEST(Mixup, LeavesASingleSampleAsItIs) {
  std::vector<float> samples{1, 2, 3};
  mixup(samples, 1, 0.25);
  EXPECT_THAT(samples, ElementsAre(1, 2, 3));
}

TEST(Mixup, AtTheEndsKeepsOrTakesAll) {
  std::vector<float> samples{1, 2, 3};
  mixup(samples, 3, 1);
  EXPECT_THAT(samples, ElementsAre(1, 2, 3));
  mixup(samples, 3, 0);
  EXPECT_THAT(samples, ElementsAre(3, 1, 2));
}

TEST(Mixup, MixesLabelsLikeTheirSamples) {
  const std::vector<std::int64_t> labels{2, 0, 0};
  std::vector<float> targets(9, 5);
  mix_labels(labels, 3, 0.75, targets);
  EXPECT_THAT(targets, ElementsAre(0.25, 0, 0.75,  //
                                   0.75, 0, 0.25,  //
                                   1, 0, 0));
}

// The variance of Beta(0.2, 0.2) is 1 / 5.6; 5 standard errors, as random_draws_test.cpp explains them.
TEST(Mixup, DrawsSharesOfASymmetricBetaDistribution) {
  SampleRandom random(1, 2, 3);
  std::vector<double> shares;
  for (int i = 0; i < 20000; ++i) shares.push_back(draw_mixup(0.2, random));
  EXPECT_NEAR(mean(shares), 0.5, 5 * std::sqrt(1 / 5.6 / 20000));
  EXPECT_NEAR(variance(shares), 1 / 5.6, 5 / 5.6 * std::sqrt(2.0 / 20000));
}

TEST(Mixup, RefusesWhatDoesNotFit) {
  std::vector<float> samples(6);
  const std::vector<std::int64_t> labels{0, 3};
  const auto refuses = [](const auto& call) { return message_of<UsageError>([&] { call(); }); };
  EXPECT_THAT(refuses([&] { mixup(samples, 4, 0.5); }), HasSubstr("batch of 4"));
  EXPECT_THAT(refuses([&] { mixup(samples, 0, 0.5); }), HasSubstr("batch of 0"));
  EXPECT_THAT(refuses([&] { mixup(samples, 3, 1.5); }), HasSubstr("1.5"));
  EXPECT_THAT(refuses([&] { mixup(samples, 3, std::nan("")); }), HasSubstr("nan"));
  EXPECT_THAT(refuses([&] { mixup(samples, 3, -0.25); }), HasSubstr("-0.25"));
  EXPECT_THAT(refuses([&] { mix_labels(labels, 4, 1.25, samples); }), HasSubstr("1.25"));
  EXPECT_THAT(refuses([&] { mix_labels(labels, 3, 0.5, samples); }), HasSubstr("label to mix is 3"));
  EXPECT_THAT(refuses([&] { mix_labels(labels, 4, 0.5, samples); }), HasSubstr("6 elements"));
}

}  // namespace
}  // namespace libtrain::data
