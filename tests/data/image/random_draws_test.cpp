#include <libtrain/data/image/random_draws.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/data/image/draw_statistics.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using test::distance;
using test::mean;
using test::uniform_over;
using test::variance;
using ::testing::HasSubstr;

constexpr int kDraws = 20000;

template <typename Draw>
std::vector<double> draws(const Draw& draw) {
  SampleRandom random(3, 1, 4);
  std::vector<double> values;
  for (int i = 0; i < kDraws; ++i) values.push_back(draw(random));
  return values;
}

TEST(RandomDraws, AreUniformOverAnInterval) {
  const auto values = draws([](SampleRandom& random) { return uniform({-2, 6}, random); });
  EXPECT_LT(distance(values, uniform_over(-2, 6)), 2.69);
}

TEST(RandomDraws, HaveUniformLogarithms) {
  const auto values = draws([](SampleRandom& random) { return log_uniform({0.5, 8}, random); });
  EXPECT_LT(distance(values, [](double x) { return std::log(x / 0.5) / std::log(16.0); }), 2.69);
}

TEST(RandomDraws, AreNormal) {
  const auto values = draws([](SampleRandom& random) { return normal(random); });
  EXPECT_LT(distance(values, [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }), 2.69);
}

// Shapes for which the distribution has a closed form: the arc sine, the uniform and two polynomials.
TEST(RandomDraws, FollowSymmetricBetaDistributions) {
  const auto beta = [](double alpha) {
    return draws([=](SampleRandom& random) { return symmetric_beta(alpha, random); });
  };
  const auto arc_sine = [](double x) { return 2 / std::numbers::pi * std::asin(std::sqrt(x)); };
  EXPECT_LT(distance(beta(0.5), arc_sine), 2.69);
  EXPECT_LT(distance(beta(1), uniform_over(0, 1)), 2.69);
  EXPECT_LT(distance(beta(2), [](double x) { return x * x * (3 - 2 * x); }), 2.69);
  EXPECT_LT(distance(beta(3), [](double x) { return x * x * x * (10 - 15 * x + 6 * x * x); }), 2.69);
}

// Mean 1/2 and variance 1 / (4 (2 alpha + 1)); 5 standard errors, that of the variance being at most its own size times
// sqrt(2 / number), since the distribution has shorter tails than the normal one.
TEST(RandomDraws, HaveTheMeanAndVarianceOfAnyBetaDistribution) {
  for (const double alpha : {0.01, 0.2, 0.8, 1.5, 40.0}) {
    const auto values = draws([&](SampleRandom& random) { return symmetric_beta(alpha, random); });
    const double expected = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(mean(values), 0.5, 5 * std::sqrt(expected / kDraws)) << alpha;
    EXPECT_NEAR(variance(values), expected, 5 * expected * std::sqrt(2.0 / kDraws)) << alpha;
    EXPECT_GE(*std::min_element(values.begin(), values.end()), 0);
    EXPECT_LE(*std::max_element(values.begin(), values.end()), 1);
  }
}

TEST(RandomDraws, RefuseImpossibleParameters) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  SampleRandom random(0, 0, 0);
  for (const double alpha : {0.0, -1.0, kInfinity, std::nan("")}) {
    EXPECT_THAT(message_of<UsageError>([&] { symmetric_beta(alpha, random); }), HasSubstr("must be positive"));
  }
  EXPECT_THAT(message_of<UsageError>([] { check_interval({0.5, 0.2}, 0, 1, "area"); }), HasSubstr("area is drawn"));
  EXPECT_THAT(message_of<UsageError>([] { check_interval({0.5, 1.2}, 0, 1, "area"); }), HasSubstr("0 to 1"));
  EXPECT_THAT(message_of<UsageError>([] { check_interval({std::nan(""), 1}, 0, 1, "area"); }), HasSubstr("nan"));
  EXPECT_THAT(message_of<UsageError>([=] { check_interval({0, kInfinity}, 0, kInfinity, "area"); }), HasSubstr("inf"));
}

}  // namespace
}  // namespace libtrain::data
