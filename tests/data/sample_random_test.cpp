#include <libtrain/data/sample_random.hpp>

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace libtrain::data {
namespace {

// Golden values: tests/data/make_golden.py, an independent implementation on Python's integers.
TEST(SampleRandom, MatchesGoldenValues) {
  SampleRandom zero(0, 0, 0);
  EXPECT_EQ(zero.next(), 8695987549771912286u);
  EXPECT_EQ(zero.next(), 13369316111306796529u);
  SampleRandom last(42, 89, 1281166);
  EXPECT_EQ(last.next(), 13427282041819347916u);
  EXPECT_EQ(last.next(), 6414859639201009578u);
}

TEST(SampleRandom, DiffersBetweenSeedsEpochsAndSamples) {
  const auto value = SampleRandom(1, 2, 3).next();
  EXPECT_NE(value, SampleRandom(0, 2, 3).next());
  EXPECT_NE(value, SampleRandom(1, 0, 3).next());
  EXPECT_NE(value, SampleRandom(1, 2, 0).next());
  EXPECT_NE(value, SampleRandom(2, 1, 3).next());
}

TEST(SampleRandom, UniformStaysInRangeWithTheMeanOfOneHalf) {
  double sum = 0;
  for (std::uint64_t index = 0; index < 10000; ++index) {
    const double value = SampleRandom(0, 0, index).uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);  // 5 standard errors of sqrt(1/12/10000)
}

// The 99.99th percentile of chi-square with 2 degrees of freedom is 18.4.
TEST(SampleRandom, IntegersAreEquallyLikely) {
  std::vector<double> counts(3);
  SampleRandom random(7, 0, 0);
  for (int i = 0; i < 30000; ++i) ++counts[static_cast<std::size_t>(random.integer(-1, 1) + 1)];
  double chi_square = 0;
  for (const double count : counts) chi_square += (count - 10000) * (count - 10000) / 10000;
  EXPECT_LT(chi_square, 18.4);
}

TEST(SampleRandom, IntegersReachTheEndsOfTheirRange) {
  constexpr int kLow = std::numeric_limits<int>::min();
  constexpr int kHigh = std::numeric_limits<int>::max();
  SampleRandom random(0, 1, 2);
  bool negative = false, positive = false;
  for (int i = 0; i < 64; ++i) (random.integer(kLow, kHigh) < 0 ? negative : positive) = true;
  EXPECT_TRUE(negative && positive);
  EXPECT_EQ(random.integer(kHigh, kHigh), kHigh);
  EXPECT_EQ(random.integer(kLow, kLow), kLow);
  EXPECT_THROW(random.integer(1, 0), UsageError);
}

}  // namespace
}  // namespace libtrain::data
