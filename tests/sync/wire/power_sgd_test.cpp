#include <libtrain/sync/wire/power_sgd.hpp>

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/sync/wire/hand_made_bucket.hpp>

namespace libtrain {
namespace {

using test::average_buckets;
using test::device;
using test::distance;
using test::is_within;
using test::make_bucket;
using test::message_of;
using test::on_ranks;
using test::random_tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t kRank = 2;
const PowerSgdOptions kAtOnce{.rank = kRank, .start_round = 0};
const Sizes kSizes{24, 20};

// Of this rank, and of full rank. Independent of other ranks'.
at::Tensor full_rank(std::uint64_t seed, int rank, const Sizes& sizes = kSizes) {
  return random_tensor(seed * 100 + static_cast<std::uint64_t>(rank), sizes);
}

at::Tensor mean_of_full_rank(std::uint64_t seed, int world_size, const Sizes& sizes = kSizes) {
  auto sum = at::zeros(sizes, at::kDouble);
  for (int rank = 0; rank < world_size; ++rank) sum += full_rank(seed, rank, sizes);
  return sum / world_size;
}

// What the ranks' gradients have in common: U V^T of rank 2, with the first rows zero, as in an embedding.
at::Tensor common_part(std::uint64_t seed, const Sizes& sizes) {
  const auto columns = at::empty(sizes, at::kDouble).numel() / sizes[0];
  const auto u = random_tensor(seed, {sizes[0], kRank});
  u.narrow(0, 0, 5).zero_();
  return u.mm(random_tensor(seed + 1, {kRank, columns})).reshape(sizes);
}

// Of full rank on each rank, but of rank 2 in the mean.
at::Tensor low_rank_in_the_mean(std::uint64_t seed, Communicator& communicator, const Sizes& sizes = kSizes) {
  const double deviation = communicator.rank() - (communicator.world_size() - 1) / 2.0;
  return common_part(seed, sizes) * (communicator.rank() + 1) + full_rank(seed, 99, sizes) * deviation;
}

at::Tensor low_rank_mean(std::uint64_t seed, Communicator& communicator, const Sizes& sizes = kSizes) {
  return common_part(seed, sizes) * ((communicator.world_size() + 1) / 2.0);
}

// A matrix, and beside it what is not worth a factorisation.
BucketView matrix_and_bias(Communicator& communicator, at::ScalarType type, std::size_t index = 0) {
  return make_bucket(communicator, index, {{"weight", at::empty(kSizes, type)}, {"bias", at::empty({24}, type)}});
}

TEST(PowerSgd, IsExactWhereTheAverageHasItsRank) {
  on_ranks([](Communicator& communicator) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      for (const bool error_feedback : {false, true}) {
        for (const bool warm_start : {false, true}) {
          auto options = kAtOnce;
          options.error_feedback = error_feedback;
          options.warm_start = warm_start;
          PowerSgdWireFormat format{options};
          const auto bucket = matrix_and_bias(communicator, type);
          format.plan({bucket}, communicator);
          for (std::uint64_t round = 1; round <= 2; ++round) {
            bucket.gradients[0].copy_(low_rank_in_the_mean(round, communicator));
            average_buckets(format, {bucket}, communicator);
            EXPECT_TRUE(
                is_within(bucket.gradients[0], low_rank_mean(round, communicator), type == at::kDouble ? 1e-8 : 0.05))
                << type << ", error feedback " << error_feedback << ", warm start " << warm_start;
          }
        }
      }
    }
  });
}

TEST(PowerSgd, MeasuresFromItsFirstCollectiveToItsLast) {
  on_ranks([](Communicator& communicator) {
    PowerSgdWireFormat format{kAtOnce};
    const auto bucket = matrix_and_bias(communicator, at::kFloat);
    format.plan({bucket}, communicator);
    const auto reduction = format.start(bucket, communicator);
    communicator.barrier();  // P has been reduced
    const auto between = WorkTimes::Clock::now();
    while (!reduction->advance()) continue;
    const auto times = reduction->times();
    if (communicator.world_size() == 1 || !device().is_cpu()) return;  // not measured, or not yet
    ASSERT_TRUE(times);
    EXPECT_LE(times->began, between);
    EXPECT_LE(between, times->ended);
  });
}

TEST(PowerSgd, AveragesBiasesAsTheyAre) {
  on_ranks([](Communicator& communicator) {
    const int ranks = communicator.world_size();
    PowerSgdWireFormat format{kAtOnce};
    const auto bucket = matrix_and_bias(communicator, at::kDouble);
    format.plan({bucket}, communicator);
    for (std::uint64_t round = 1; round <= 2; ++round) {
      bucket.gradients[0].copy_(full_rank(round, communicator.rank()));
      bucket.gradients[1].copy_(full_rank(round, communicator.rank(), {24}));
      const auto calls = average_buckets(format, {bucket}, communicator);
      EXPECT_THAT(calls, ElementsAre(ranks == 1 ? 1 : 2));
      EXPECT_TRUE(is_within(bucket.gradients[1], mean_of_full_rank(round, ranks, {24}), 1e-12));
    }
  });
}

TEST(PowerSgd, LeavesBucketsWithoutLargeMatricesAsTheyAre) {
  on_ranks([](Communicator& communicator) {
    const std::vector<BucketView> buckets{
        make_bucket(communicator, 0, {{"small", at::empty({6, 6}, at::kFloat)}, {"scalar", at::empty({}, at::kFloat)}}),
        make_bucket(communicator, 1, {{"half", at::empty(kSizes, at::kHalf)}})};
    PowerSgdWireFormat format{kAtOnce};
    format.plan(buckets, communicator);
    for (const auto& bucket : buckets) bucket.gradients[0].fill_(communicator.rank());
    EXPECT_THAT(average_buckets(format, buckets, communicator), ElementsAre(1, 1));
    for (const auto& bucket : buckets) {
      EXPECT_TRUE(bucket.gradients[0].eq((communicator.world_size() - 1) / 2.0).all().item().toBool());
    }
  });
}

// Sums over `rounds` of what the format made of gradients of full rank, the same in every round.
at::Tensor sum_of_rounds(PowerSgdWireFormat& format, const BucketView& bucket, int rounds, Communicator& communicator) {
  auto sum = at::zeros(kSizes, at::kDouble);
  for (int round = 0; round < rounds; ++round) {
    bucket.gradients[0].copy_(full_rank(1, communicator.rank()));
    average_buckets(format, {bucket}, communicator);
    sum += bucket.gradients[0].cpu();
  }
  return sum;
}

// The mean over ranks of the error is what all rounds together lack, and it stays bounded while their sum grows.
TEST(PowerSgd, SendsWithErrorFeedbackEverythingInTheEnd) {
  on_ranks([](Communicator& communicator) {
    const auto truth = mean_of_full_rank(1, communicator.world_size());
    const auto bucket = matrix_and_bias(communicator, at::kFloat);
    PowerSgdWireFormat format{kAtOnce};
    format.plan({bucket}, communicator);
    auto sum = sum_of_rounds(format, bucket, 30, communicator);
    EXPECT_LT(distance(sum, truth * 30), 0.3);
    sum += sum_of_rounds(format, bucket, 90, communicator);
    EXPECT_LT(distance(sum, truth * 120), 0.08);

    if (communicator.world_size() == 1) return;
    auto options = kAtOnce;
    options.error_feedback = false;
    PowerSgdWireFormat forgetful{options};
    forgetful.plan({bucket}, communicator);
    EXPECT_GT(distance(sum_of_rounds(forgetful, bucket, 20, communicator), truth * 20), 0.5);
  });
}

TEST(PowerSgd, KeepsWhatItKnowsWhenBucketsChange) {
  on_ranks([](Communicator& communicator) {
    const auto weight = at::empty(kSizes, at::kDouble);
    const auto run = [&](bool changes) {
      PowerSgdWireFormat format{kAtOnce};
      std::vector<BucketView> buckets{make_bucket(communicator, 0, {{"first", weight}}),
                                      make_bucket(communicator, 1, {{"second", weight}})};
      format.plan(buckets, communicator);
      auto sum = at::zeros(kSizes, at::kDouble);
      for (std::uint64_t round = 0; round < 6; ++round) {
        if (round == 3 && changes) {
          buckets = {make_bucket(communicator, 0, {{"second", weight}, {"first", weight}})};
          format.plan(buckets, communicator);
        }
        const auto& first = changes && round >= 3 ? buckets[0].gradients[1] : buckets[0].gradients[0];
        first.copy_(full_rank(round, communicator.rank()));
        average_buckets(format, buckets, communicator);
        sum += first.cpu();
      }
      return sum;
    };
    EXPECT_TRUE(is_within(run(true), run(false), 1e-9));
  });
}

TEST(PowerSgd, GivesTheSameBitsToAllRanks) {
  on_ranks([](Communicator& communicator) {
    const Sizes wide{9, 1500};
    for (const auto type : {at::kFloat, at::kDouble}) {
      const auto bucket = make_bucket(
          communicator, 0,
          {{"odd", at::empty({23, 19}, type)}, {"wide", at::empty(wide, type)}, {"square", at::empty({64, 64}, type)}});
      PowerSgdWireFormat format{kAtOnce};
      format.plan({bucket}, communicator);
      for (std::uint64_t round = 0; round < 4; ++round) {
        for (const auto& gradient : bucket.gradients) {
          gradient.copy_(full_rank(round, communicator.rank(), gradient.sizes().vec()));
        }
        average_buckets(format, {bucket}, communicator);
        const auto flat = bucket.flat.cpu();
        const std::string bytes{static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
        for (const auto& other : communicator.all_gather_bytes(bytes)) EXPECT_TRUE(other == bytes);
      }
    }
  });
}

TEST(PowerSgd, StartsAfterRoundsOfPlainAverages) {
  on_ranks([](Communicator& communicator) {
    const int ranks = communicator.world_size();
    auto options = kAtOnce;
    options.start_round = 2;
    PowerSgdWireFormat format{options};
    const auto bucket = matrix_and_bias(communicator, at::kDouble);
    format.plan({bucket}, communicator);
    for (std::uint64_t round = 0; round < 4; ++round) {
      bucket.gradients[0].copy_(full_rank(round, communicator.rank()));
      average_buckets(format, {bucket}, communicator);
      const bool is_exact{is_within(bucket.gradients[0], mean_of_full_rank(round, ranks), 1e-9)};
      EXPECT_EQ(is_exact, round < 2 || ranks == 1) << "round " << round;
    }
  });
}

TEST(PowerSgd, TakesConvolutionsInAnyLayout) {
  on_ranks([](Communicator& communicator) {
    const Sizes sizes{16, 8, 3, 3};
    for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const auto bucket = make_bucket(communicator, 0, {{"weight", at::empty(sizes, at::kDouble, layout)}});
      PowerSgdWireFormat format{kAtOnce};
      format.plan({bucket}, communicator);
      bucket.gradients[0].copy_(low_rank_in_the_mean(3, communicator, sizes));
      average_buckets(format, {bucket}, communicator);
      EXPECT_TRUE(is_within(bucket.gradients[0], low_rank_mean(3, communicator, sizes), 1e-8)) << layout;
    }
  });
}

// Zero leaves no direction to start from: the first round after it has to find one, the second sends the rest.
TEST(PowerSgd, RecoversFromRoundsOfZeros) {
  on_ranks([](Communicator& communicator) {
    PowerSgdWireFormat format{kAtOnce};
    const auto bucket = matrix_and_bias(communicator, at::kDouble);
    format.plan({bucket}, communicator);
    for (int round = 0; round < 2; ++round) {
      bucket.flat.zero_();
      average_buckets(format, {bucket}, communicator);
      EXPECT_TRUE(bucket.flat.eq(0).all().item().toBool());
    }
    auto sum = at::zeros(kSizes, at::kDouble);
    for (int round = 0; round < 2; ++round) {
      bucket.gradients[0].copy_(low_rank_in_the_mean(5, communicator));
      average_buckets(format, {bucket}, communicator);
      sum += bucket.gradients[0].cpu();
    }
    EXPECT_TRUE(is_within(sum, low_rank_mean(5, communicator) * 2, 1e-8));
  });
}

TEST(PowerSgd, TellsAllRanksOfWhatIsNotFiniteAndForgetsIt) {
  on_ranks([](Communicator& communicator) {
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      const auto weight = at::empty(kSizes, at::kDouble);
      const auto bucket = make_bucket(communicator, 0, {{"sick", weight}, {"healthy", weight}});
      PowerSgdWireFormat format{kAtOnce};
      format.plan({bucket}, communicator);
      for (std::uint64_t round = 1; round <= 4; ++round) {
        for (const auto& gradient : bucket.gradients) gradient.copy_(low_rank_in_the_mean(round, communicator));
        const bool is_bad = round == 2;
        if (is_bad && communicator.rank() == communicator.world_size() - 1) bucket.gradients[0][3][4].fill_(bad);
        average_buckets(format, {bucket}, communicator);
        const auto mean = low_rank_mean(round, communicator);
        EXPECT_EQ(bucket.gradients[0].isfinite().all().item().toBool(), !is_bad) << "round " << round;
        EXPECT_EQ(is_within(bucket.gradients[0], mean, 1e-8), !is_bad) << "round " << round;
        EXPECT_TRUE(is_within(bucket.gradients[1], mean, 1e-8)) << "round " << round;
      }
    }
  });
}

// The spikes leave their traces in the start of the iteration and in the error.
TEST(PowerSgd, SurvivesNumbersWhoseProductsOverflow) {
  on_ranks([](Communicator& communicator) {
    for (const bool error_feedback : {false, true}) {
      for (const double size : {1e20, 1e30, 1e38}) {
        auto options = kAtOnce;
        options.error_feedback = error_feedback;
        PowerSgdWireFormat format{options};
        const auto bucket = matrix_and_bias(communicator, at::kFloat);
        format.plan({bucket}, communicator);
        for (std::uint64_t round = 0; round < 2; ++round) {
          bucket.gradients[0].copy_(full_rank(round, communicator.rank()).clamp(-1, 1) * size);
          average_buckets(format, {bucket}, communicator);
        }
        for (std::uint64_t round = 1; round <= 3; ++round) {
          bucket.gradients[0].copy_(low_rank_in_the_mean(round, communicator));
          average_buckets(format, {bucket}, communicator);
        }
        EXPECT_TRUE(bucket.flat.isfinite().all().item().toBool()) << "after numbers of " << size;
        if (error_feedback) continue;
        EXPECT_TRUE(is_within(bucket.gradients[0], low_rank_mean(3, communicator), 0.05))
            << "after numbers of " << size;
      }
    }
  });
}

TEST(PowerSgd, RefusesOptionsOutOfRange) {
  const auto message = [](const PowerSgdOptions& options) {
    return message_of<UsageError>([&] { PowerSgdWireFormat{options}; });
  };
  EXPECT_THAT(message({.rank = 0}), HasSubstr("PowerSgdOptions::rank is 0"));
  EXPECT_THAT(message({.start_round = -1}), HasSubstr("PowerSgdOptions::start_round is -1"));
  EXPECT_THAT(message({.min_compression_rate = 0.5}), HasSubstr("PowerSgdOptions::min_compression_rate is 0.5"));
  EXPECT_EQ(PowerSgdWireFormat{kAtOnce}.name(), "powersgd of rank 2");
}

TEST(PowerSgd, RefusesABucketThatWasNotPlanned) {
  on_ranks([](Communicator& communicator) {
    PowerSgdWireFormat format;
    const auto bucket = matrix_and_bias(communicator, at::kFloat);
    EXPECT_THAT(message_of<UsageError>([&] { format.start(bucket, communicator); }), HasSubstr("bucket 0"));
  });
}

}  // namespace
}  // namespace libtrain
