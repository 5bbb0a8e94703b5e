#include <libtrain/sync/wire/half_precision.hpp>

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/sync/wire/hand_made_bucket.hpp>

namespace libtrain {
namespace {

using test::average_bucket;
using test::average_buckets;
using test::is_within;
using test::make_bucket;
using test::message_of;
using test::on_ranks;
using test::random_tensor;
using ::testing::HasSubstr;

// The largest relative error of rounding to a type, and the largest absolute one where it has denormal numbers.
struct Rounding {
  at::ScalarType type;
  double relative;
  double absolute;
};
constexpr Rounding kRoundings[] = {{at::kBFloat16, 0x1p-8, 0}, {at::kHalf, 0x1p-11, 0x1p-25}};

constexpr std::int64_t kElements = 3000;

at::Tensor gradient_of(int rank, at::IntArrayRef sizes) {
  return random_tensor(static_cast<std::uint64_t>(rank) + 7, sizes);
}

TEST(HalfPrecision, AveragesWithinTheRoundingOfItsType) {
  on_ranks([](Communicator& communicator) {
    for (const auto& rounding : kRoundings) {
      for (const auto type : {at::kFloat, at::kDouble}) {
        const auto bucket = make_bucket(communicator, 0, {{"weight", at::empty({50, 60}, type)}});
        bucket.gradients[0].copy_(gradient_of(communicator.rank(), {50, 60}));
        HalfPrecisionWireFormat format{HalfPrecisionOptions{.type = rounding.type}};
        EXPECT_EQ(average_bucket(format, bucket, communicator), 1);

        auto mean = at::zeros({50, 60}, at::kDouble);
        auto mean_size = at::zeros({50, 60}, at::kDouble);
        for (int rank = 0; rank < communicator.world_size(); ++rank) {
          mean += gradient_of(rank, {50, 60}) / communicator.world_size();
          mean_size += gradient_of(rank, {50, 60}).abs() / communicator.world_size();
        }
        // Each rank's gradient is rounded, then their average; the rest is for float32.
        const auto bound = (mean_size + mean.abs()) * (1.01 * rounding.relative) + (3 * rounding.absolute + 1e-6);
        EXPECT_TRUE(is_within(bucket.gradients[0], mean, bound)) << format.name() << ", buckets of " << type;
      }
    }
  });
}

TEST(HalfPrecision, IsExactForNumbersOfFewBits) {
  on_ranks([](Communicator& communicator) {
    const double mean = (communicator.world_size() + 1) / 2.0;
    for (const auto& rounding : kRoundings) {
      for (const double predivide : {1.0, 0.5, 8.0}) {
        const auto bucket = make_bucket(communicator, 0, {{"weight", at::empty({kElements}, at::kFloat)}});
        const auto pattern = at::arange(kElements, at::kFloat).remainder(8);
        // The sum has to be exact, too: a world size that is no power of two leaves a factor that is not.
        bucket.gradients[0].copy_(pattern * (communicator.rank() + 1));
        HalfPrecisionWireFormat format{HalfPrecisionOptions{.type = rounding.type, .predivide = predivide}};
        average_bucket(format, bucket, communicator);
        EXPECT_TRUE(is_within(bucket.gradients[0], pattern * mean, 1e-5)) << format.name() << ", by " << predivide;
      }
    }
  });
}

// 1 + 2^-20 is a float32 and no 16-bit float.
TEST(HalfPrecision, LeavesTinyBucketsExactlyAsTheyAre) {
  on_ranks([](Communicator& communicator) {
    const auto bucket = make_bucket(communicator, 0, {{"bias", at::empty({20}, at::kFloat)}});
    bucket.gradients[0].fill_(1 + 0x1p-20 * communicator.rank());
    HalfPrecisionWireFormat format;
    average_bucket(format, bucket, communicator);
    const float mean = 1 + 0x1p-21f * static_cast<float>(communicator.world_size() - 1);
    EXPECT_TRUE(bucket.gradients[0].eq(mean).all().item().toBool());
  });
}

TEST(HalfPrecision, LeavesSixteenBitBucketsInTheirType) {
  on_ranks([](Communicator& communicator) {
    const auto bucket = make_bucket(communicator, 0, {{"weight", at::empty({kElements}, at::kBFloat16)}});
    bucket.gradients[0].fill_(2.0 * communicator.rank() * 0x1p100);  // beyond float16
    HalfPrecisionWireFormat format{HalfPrecisionOptions{.type = at::kHalf}};
    average_bucket(format, bucket, communicator);
    EXPECT_TRUE(bucket.gradients[0].eq((communicator.world_size() - 1) * 0x1p100).all().item().toBool());
  });
}

TEST(HalfPrecision, ReachesBeyondTheRangeOfFloat16ByPredividing) {
  on_ranks([](Communicator& communicator) {
    const int ranks = communicator.world_size();
    for (const double predivide : {1.0, 2.0 * ranks}) {
      const auto bucket = make_bucket(communicator, 0, {{"weight", at::empty({kElements}, at::kFloat)}});
      bucket.gradients[0].fill_(100000);
      HalfPrecisionWireFormat format{HalfPrecisionOptions{.type = at::kHalf, .predivide = predivide}};
      EXPECT_TRUE(format.may_overflow());
      average_bucket(format, bucket, communicator);
      if (predivide > 1 || ranks == 1) {
        EXPECT_TRUE(is_within(bucket.gradients[0], at::full({kElements}, 100000), 2 * 0x1p-11 * 100000));
      } else {
        EXPECT_TRUE(bucket.gradients[0].isinf().all().item().toBool());
      }
    }
  });
}

TEST(HalfPrecision, SaysWhichTypesMayOverflow) {
  on_ranks([](Communicator& communicator) {
    HalfPrecisionWireFormat format;
    EXPECT_EQ(format.name(), "bfloat16");
    format.plan({make_bucket(communicator, 0, {{"weight", at::empty({kElements}, at::kFloat)}})}, communicator);
    EXPECT_FALSE(format.may_overflow());
    format.plan({make_bucket(communicator, 0, {{"weight", at::empty({kElements}, at::kDouble)}})}, communicator);
    EXPECT_EQ(format.may_overflow(), communicator.world_size() > 1);
  });
}

TEST(HalfPrecision, TellsAllRanksOfWhatIsNotFinite) {
  on_ranks([](Communicator& communicator) {
    for (const auto& rounding : kRoundings) {
      for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        const auto bucket = make_bucket(communicator, 0, {{"weight", at::empty({kElements}, at::kFloat)}});
        if (communicator.rank() == 0) bucket.gradients[0][5].fill_(bad);
        HalfPrecisionWireFormat format{HalfPrecisionOptions{.type = rounding.type}};
        average_bucket(format, bucket, communicator);
        EXPECT_FALSE(std::isfinite(bucket.gradients[0][5].item().toDouble()));
        EXPECT_EQ(bucket.gradients[0][6].item().toDouble(), 0);
      }
    }
  });
}

TEST(HalfPrecision, AveragesSeveralBucketsRoundAfterRound) {
  on_ranks([](Communicator& communicator) {
    const std::vector<BucketView> buckets{
        make_bucket(communicator, 0, {{"small", at::empty({4}, at::kFloat)}}),
        make_bucket(communicator, 1, {{"large", at::empty({kElements}, at::kFloat)}}),
        make_bucket(communicator, 2, {{"double", at::empty({kElements}, at::kDouble)}})};
    HalfPrecisionWireFormat format;
    format.plan(buckets, communicator);
    for (int round = 0; round < 3; ++round) {
      for (const auto& bucket : buckets) bucket.gradients[0].fill_(communicator.rank() + round);
      average_buckets(format, buckets, communicator);
      const double mean = (communicator.world_size() - 1) / 2.0 + round;
      for (const auto& bucket : buckets) EXPECT_TRUE(bucket.gradients[0].eq(mean).all().item().toBool());
    }
  });
}

TEST(HalfPrecision, RefusesOptionsOutOfRange) {
  const auto message = [](const HalfPrecisionOptions& options) {
    return message_of<UsageError>([&] { HalfPrecisionWireFormat{options}; });
  };
  EXPECT_THAT(message({.type = at::kFloat}), HasSubstr("HalfPrecisionOptions::type is Float"));
  EXPECT_THAT(message({.predivide = 0}), HasSubstr("HalfPrecisionOptions::predivide is 0"));
  EXPECT_THAT(message({.predivide = std::nan("")}), HasSubstr("predivide is nan"));
  EXPECT_THAT(message({.min_elements = -1}), HasSubstr("HalfPrecisionOptions::min_elements is -1"));
}

TEST(HalfPrecision, RefusesABucketThatWasNotPlanned) {
  on_ranks([](Communicator& communicator) {
    HalfPrecisionWireFormat format;
    const auto bucket = make_bucket(communicator, 2, {{"weight", at::empty({kElements}, at::kFloat)}});
    EXPECT_THAT(message_of<UsageError>([&] { format.start(bucket, communicator); }), HasSubstr("bucket 2"));
  });
}

}  // namespace
}  // namespace libtrain
