#include <libtrain/observe/detail/percentile.hpp>

#include <gtest/gtest.h>

#include <limits>

#include <libtrain/base/error.hpp>

namespace libtrain {
namespace {

TEST(Percentile, OfOneValueIsThatValue) {
  for (const double share : {0.0, 0.3, 1.0}) EXPECT_EQ(detail::percentile({4.0}, share), 4.0);
}

TEST(Percentile, EndsAreMinimumAndMaximum) {
  EXPECT_EQ(detail::percentile({3.0, -1.0, 2.0}, 0.0), -1.0);
  EXPECT_EQ(detail::percentile({3.0, -1.0, 2.0}, 1.0), 3.0);
}

TEST(Percentile, MedianOfAnEvenCountLiesBetweenTheMiddleTwo) {
  EXPECT_EQ(detail::percentile({4.0, 1.0, 3.0, 2.0}, 0.5), 2.5);
  EXPECT_EQ(detail::percentile({5.0, 1.0, 3.0}, 0.5), 3.0);
}

// numpy.percentile([0.7, 3.1, 2.2, 9.5, 4.4, 1.0, 8.25], [10, 25, 90, 99])
TEST(Percentile, InterpolatesAsNumpyDoes) {
  const std::vector<double> values{0.7, 3.1, 2.2, 9.5, 4.4, 1.0, 8.25};
  EXPECT_DOUBLE_EQ(detail::percentile(values, 0.10), 0.88);
  EXPECT_DOUBLE_EQ(detail::percentile(values, 0.25), 1.6);
  EXPECT_DOUBLE_EQ(detail::percentile(values, 0.90), 8.75);
  EXPECT_DOUBLE_EQ(detail::percentile(values, 0.99), 9.424999999999999);
}

TEST(Percentile, RefusesWhatHasNoAnswer) {
  EXPECT_THROW(detail::percentile({}, 0.5), UsageError);
  EXPECT_THROW(detail::percentile({1.0, std::numeric_limits<double>::quiet_NaN()}, 0.5), UsageError);
  EXPECT_THROW(detail::percentile({1.0}, 1.01), UsageError);
  EXPECT_THROW(detail::percentile({1.0}, std::numeric_limits<double>::quiet_NaN()), UsageError);
}

}  // namespace
}  // namespace libtrain
