#include <libtrain/sync/detail/bucket_tuning.hpp>

#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

Bucket bucket_of(std::size_t bytes, std::vector<std::size_t> members) {
  return {.type = DataType::float32, .bytes = bytes, .members = std::move(members)};
}

std::vector<GradientSpec> equal_gradients(std::size_t count, std::size_t bytes) {
  return std::vector<GradientSpec>(count, {bytes / sizeof(float), DataType::float32});
}

// The first gradient is ready after `interval_s`.
std::vector<double> evenly(std::size_t count, double interval_s) {
  std::vector<double> ready;
  for (std::size_t index = 1; index <= count; ++index) ready.push_back(interval_s * static_cast<double>(index));
  return ready;
}

TEST(PredictFinish, FollowsTheBucketsOneAfterAnother) {
  const detail::LinkCost link{.latency_s = 1, .bytes_per_s = 100};
  // Ready after 3 s, 2 s long; ready after 4 s, started after 5 s, 3 s long.
  EXPECT_DOUBLE_EQ(detail::predict_finish({bucket_of(100, {0, 1}), bucket_of(200, {2})}, {1, 3, 4}, link), 8);
  // The second bucket is ready after the first has ended.
  EXPECT_DOUBLE_EQ(detail::predict_finish({bucket_of(100, {0, 1}), bucket_of(200, {2})}, {1, 3, 7}, link), 10);
  // Both wait for what is ready last, wherever it stands in its bucket.
  EXPECT_DOUBLE_EQ(detail::predict_finish({bucket_of(100, {0, 1}), bucket_of(200, {2})}, {9, 3, 7}, link), 14);
}

TEST(PredictFinish, OfNothingIsZero) {
  EXPECT_EQ(detail::predict_finish({}, {}, {.latency_s = 1, .bytes_per_s = 1}), 0);
}

TEST(PredictFinish, RefusesWhatItCannotUse) {
  const detail::LinkCost link{.latency_s = 1, .bytes_per_s = 100};
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message_of<UsageError>([&] { detail::predict_finish({bucket_of(4, {2})}, {1, 1}, link); }),
              AllOf(HasSubstr("gradient 2"), HasSubstr("for 2 gradients")));
  EXPECT_THAT(message_of<UsageError>([&] { detail::predict_finish({bucket_of(4, {0})}, {-3}, link); }),
              HasSubstr("-3 s"));
  EXPECT_THROW(detail::predict_finish({bucket_of(4, {0})}, {kNan}, link), UsageError);
  EXPECT_THAT(message_of<UsageError>([] { detail::predict_finish({}, {}, {.latency_s = -2, .bytes_per_s = 1}); }),
              HasSubstr("-2 s"));
  EXPECT_THROW(detail::predict_finish({}, {}, {.latency_s = 0, .bytes_per_s = 0}), UsageError);
  EXPECT_THROW(detail::predict_finish({}, {}, {.latency_s = kNan, .bytes_per_s = 1}), UsageError);
}

TEST(ChooseLimits, OneBucketIsBestForWhatIsReadyAtOnce) {
  const auto limits = detail::choose_limits(equal_gradients(16, kMiB), std::vector<double>(16, 0.0),
                                            {.latency_s = 1e-3, .bytes_per_s = 1e9});
  EXPECT_EQ(limits.bucket_bytes, 16 * kMiB);
  EXPECT_EQ(limits.first_bucket_bytes, 16 * kMiB);
}

// A reduction takes a tenth of the time between two gradients, so that only the last bucket is not hidden: it should be
// one gradient, and the fewest buckets for that are two.
TEST(ChooseLimits, KeepsTheLastBucketSmallWhereTheRestIsHidden) {
  const auto limits = detail::choose_limits(equal_gradients(5, kMiB), evenly(5, 1),
                                            {.latency_s = 0, .bytes_per_s = 10.0 * static_cast<double>(kMiB)});
  EXPECT_EQ(limits.bucket_bytes, 4 * kMiB);
  EXPECT_EQ(limits.first_bucket_bytes, 4 * kMiB);
}

// n bytes that arrive as fast as they are reduced: with s bytes a bucket, n / s latencies and the time of the last
// bucket are left, least at s = sqrt(n * latency * bandwidth).
TEST(ChooseLimits, FollowsTheClosedFormForGradientsThatArriveEvenly) {
  constexpr std::size_t kGradients = 400;
  constexpr std::size_t kBytes = 256 * kKiB;
  constexpr auto kTotal = static_cast<double>(kGradients * kBytes);
  const detail::LinkCost links[] = {{50e-6, 12.2e9}, {30e-6, 130e9}, {260e-6, 12.2e9}, {5e-6, 10e9}, {1e-3, 1e9}};
  for (const auto& link : links) {
    const double best = std::sqrt(kTotal * link.latency_s * link.bytes_per_s);
    const auto chosen = detail::choose_limits(equal_gradients(kGradients, kBytes),
                                              evenly(kGradients, static_cast<double>(kBytes) / link.bytes_per_s), link);
    EXPECT_NEAR(std::log2(static_cast<double>(chosen.bucket_bytes) / best), 0, 0.5)
        << "latency " << link.latency_s << " s: " << chosen.bucket_bytes << " bytes instead of " << best;
  }
}

TEST(ChooseLimits, NoPowersOfTwoAreBetter) {
  std::mt19937_64 random{1};
  for (int trial = 0; trial < 5; ++trial) {
    std::vector<GradientSpec> gradients;
    std::vector<double> ready;
    double now = 0;
    for (int index = 0; index < 60; ++index) {
      const auto type = random() % 4 == 0 ? DataType::bfloat16 : DataType::float32;
      gradients.push_back({static_cast<std::size_t>(random() % 700'000), type});
      now += 1e-6 * static_cast<double>(random() % 400);
      ready.push_back(now);
    }
    const detail::LinkCost link{.latency_s = 1e-6 * static_cast<double>(1 + random() % 300),
                                .bytes_per_s = 1e9 * static_cast<double>(1 + random() % 20)};
    const auto finish_with = [&](const BucketLimits& limits) {
      return detail::predict_finish(plan_buckets(gradients, limits), ready, link);
    };
    const auto chosen = detail::choose_limits(gradients, ready, link);
    EXPECT_LE(chosen.first_bucket_bytes, chosen.bucket_bytes);
    for (auto limit = 64 * kKiB; limit <= 256 * kMiB; limit *= 2) {
      for (auto first = 64 * kKiB; first <= limit; first *= 2) {
        EXPECT_LE(finish_with(chosen), 1.001 * finish_with({.bucket_bytes = limit,
                                                            .first_bucket_bytes = first,
                                                            .alone_bytes = BucketLimits::kNever}))
            << "trial " << trial << ", limits " << limit << " and " << first;
      }
    }
  }
}

TEST(ChooseLimits, WantsATimeForEachGradient) {
  EXPECT_THAT(
      message_of<UsageError>([] { detail::choose_limits(equal_gradients(3, kMiB), {0.0}, {.latency_s = 1e-6}); }),
      AllOf(HasSubstr("3 gradients"), HasSubstr("1 ready times")));
}

TEST(FitLink, FindsTheLineThatTimesLieOn) {
  std::vector<detail::ReductionTime> times;
  for (const std::size_t bytes : {4ul, 1024ul, 65536ul, 4ul << 20, 64ul << 20}) {
    times.push_back({bytes, 20e-6 + static_cast<double>(bytes) / 5e9});
  }
  const auto link = detail::fit_link(times);
  EXPECT_NEAR(link.latency_s, 20e-6, 1e-12);
  EXPECT_NEAR(link.bytes_per_s, 5e9, 1);
}

// Times 1, 2 and 4 of sizes 0, 1 and 2: the weights are 1, 1/4 and 1/16, and the normal equations
//   21/16 latency + 3/8 slope = 7/4,   3/8 latency + 1/2 slope = 1   give latency 32/33 and slope 14/11.
TEST(FitLink, WeighsErrorsByTheTimes) {
  const auto link = detail::fit_link({{0, 1}, {1, 2}, {2, 4}});
  EXPECT_NEAR(link.latency_s, 32.0 / 33, 1e-12);
  EXPECT_NEAR(link.bytes_per_s, 11.0 / 14, 1e-12);
}

TEST(FitLink, StaysWithinWhatALinkCanHave) {
  // Twice the size takes three times as long: a line through the origin is left, (1/4 + 1/9) / (1/2 + 1/3) MB/s.
  const auto without_latency = detail::fit_link({{1'000'000, 2}, {2'000'000, 6}});
  EXPECT_DOUBLE_EQ(without_latency.latency_s, 1e-7);
  EXPECT_NEAR(without_latency.bytes_per_s, 1e6 * (1.0 / 4 + 1.0 / 9) / (1.0 / 2 + 1.0 / 3), 1e-3);
  // Larger is faster: the weighted mean of 4 and 1 is left, with weights 1/16 and 1.
  const auto without_growth = detail::fit_link({{1'000'000, 4}, {2'000'000, 1}});
  EXPECT_NEAR(without_growth.latency_s, (1.0 / 4 + 1) / (1.0 / 16 + 1), 1e-12);
  EXPECT_NEAR(without_growth.bytes_per_s, 1e13, 1);
}

TEST(FitLink, RefusesTimesThatSayNothing) {
  EXPECT_THAT(message_of<UsageError>([] { detail::fit_link({}); }), HasSubstr("0 times"));
  EXPECT_THAT(message_of<UsageError>([] { detail::fit_link({{8, 1}, {8, 2}}); }), HasSubstr("2 times"));
  EXPECT_THAT(message_of<UsageError>([] { detail::fit_link({{8, 1}, {16, -3}}); }),
              AllOf(HasSubstr("16 bytes"), HasSubstr("-3 s")));
}

TEST(FitLink, TakesTimesThatTheClockDoesNotSee) {
  const auto link = detail::fit_link({{4096, 0}, {1'048'576, 0}});
  EXPECT_DOUBLE_EQ(link.latency_s, 1e-7);
  EXPECT_NEAR(link.bytes_per_s, 1e13, 1);
}

}  // namespace
}  // namespace libtrain
