#include <libtrain/data/sampler.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

namespace libtrain::data {
namespace {

using Indices = std::vector<std::uint64_t>;

Indices global_order(SamplerOptions options, int world_size, std::uint64_t epoch) {
  Indices order;
  std::vector<Sampler> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.emplace_back(options, Shard{rank, world_size});
  for (std::uint64_t step = 0; step < ranks[0].batches_per_epoch(); ++step) {
    for (const auto& sampler : ranks) {
      const auto batch = sampler.batch(epoch, step);
      order.insert(order.end(), batch.begin(), batch.end());
    }
  }
  return order;
}

std::map<std::uint64_t, std::uint64_t> histogram(const Indices& indices) {
  std::map<std::uint64_t, std::uint64_t> counts;
  for (const auto index : indices) ++counts[index];
  return counts;
}

// What an epoch must contain, worked out from the definition of each remainder alone.
void check_cover(const SamplerOptions& options, int world_size) {
  const auto order = global_order(options, world_size, 3);
  const auto world = static_cast<std::uint64_t>(world_size);
  const std::uint64_t size = options.dataset_size;
  const std::uint64_t global_batch = options.batch_size * world;
  std::uint64_t expected = size;
  if (options.remainder == Remainder::pad && size % world != 0) expected += world - size % world;
  if (options.remainder == Remainder::drop) expected -= size % global_batch;
  ASSERT_EQ(order.size(), expected);
  const auto counts = histogram(order);
  ASSERT_LT(counts.rbegin()->first, size);
  ASSERT_EQ(counts.size(), std::min(expected, size));
  if (expected <= size) return;
  EXPECT_EQ(Sampler(options, {0, world_size}).padding(), expected - size);
  for (std::uint64_t i = size; i < expected; ++i) EXPECT_EQ(order[i], order[i % size]);
}

TEST(Sampler, CoversTheDataSetWithoutOverlap) {
  std::mt19937 random(20);
  const auto draw = [&](unsigned low, unsigned high) { return low + random() % (high - low + 1); };
  for (int trial = 0; trial < 200; ++trial) {
    const int world_size = static_cast<int>(draw(1, 9));
    SamplerOptions options{.dataset_size = draw(1, 400), .batch_size = draw(1, 40), .seed = draw(0, 9)};
    options.remainder = static_cast<Remainder>(draw(0, 2));
    if (options.remainder == Remainder::drop) options.dataset_size += 9 * 40;
    SCOPED_TRACE(testing::Message() << options.dataset_size << " samples, " << world_size << " ranks, batch "
                                    << options.batch_size << ", remainder " << static_cast<int>(options.remainder));
    check_cover(options, world_size);
  }
}

TEST(Sampler, GlobalOrderDoesNotDependOnTheWorldSize) {
  for (const Remainder remainder : {Remainder::drop, Remainder::exact}) {
    SamplerOptions options{.dataset_size = 1000, .batch_size = 18, .seed = 5, .remainder = remainder};
    const Indices one_rank = global_order(options, 1, 7);
    for (const int world_size : {2, 3, 6}) {
      options.batch_size = static_cast<std::uint64_t>(18 / world_size);
      EXPECT_EQ(global_order(options, world_size, 7), one_rank);
    }
  }
  SamplerOptions padded{.dataset_size = 1000, .batch_size = 18, .seed = 5};
  const Indices one_rank = global_order(padded, 1, 7);
  for (const int world_size : {2, 3, 6}) {
    padded.batch_size = static_cast<std::uint64_t>(18 / world_size);
    const Indices order = global_order(padded, world_size, 7);
    EXPECT_TRUE(std::equal(one_rank.begin(), one_rank.end(), order.begin()));
  }
}

TEST(Sampler, PadGivesEveryRankEquallyManyInEveryStep) {
  const SamplerOptions options{.dataset_size = 1437, .batch_size = 32};
  for (std::uint64_t step = 0; step < 12; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      const Sampler sampler(options, {rank, 4});
      ASSERT_EQ(sampler.batches_per_epoch(), 12u);
      EXPECT_EQ(sampler.batch(0, step).size(), step < 11 ? 32u : 8u);
    }
  }
  EXPECT_EQ(Sampler(options, {0, 4}).padding(), 3u);
}

TEST(Sampler, ExactMayLeaveARankWithoutSamples) {
  const SamplerOptions options{.dataset_size = 10, .batch_size = 2, .remainder = Remainder::exact};
  const std::vector<std::size_t> last_sizes{1, 1, 0, 0};
  for (int rank = 0; rank < 4; ++rank) {
    const Sampler sampler(options, {rank, 4});
    EXPECT_EQ(sampler.batches_per_epoch(), 2u);
    EXPECT_EQ(sampler.batch(0, 1).size(), last_sizes[static_cast<std::size_t>(rank)]);
  }
}

TEST(Sampler, MoreRanksThanSamplesRepeatsThemAll) {
  EXPECT_EQ(global_order({.dataset_size = 3, .batch_size = 4, .order = Order::sequential}, 8, 0),
            (Indices{0, 1, 2, 0, 1, 2, 0, 1}));
}

TEST(Sampler, SequentialKeepsTheOrderOfTheData) {
  const Sampler sampler({.dataset_size = 10, .batch_size = 3, .order = Order::sequential}, {1, 2});
  EXPECT_EQ(sampler.batch(4, 0), (Indices{3, 4, 5}));
  EXPECT_EQ(sampler.batch(4, 1), (Indices{8, 9}));
}

TEST(Sampler, EpochsAndSeedsGiveDifferentOrders) {
  const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    return global_order({.dataset_size = 50, .batch_size = 50, .seed = seed}, 1, epoch);
  };
  EXPECT_EQ(order(1, 1), order(1, 1));
  EXPECT_NE(order(1, 1), order(1, 2));
  EXPECT_NE(order(1, 1), order(2, 1));
}

std::string error_of(const SamplerOptions& options, Shard shard = {}) {
  try {
    Sampler{options, shard};
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  using testing::HasSubstr;
  EXPECT_THAT(error_of({.dataset_size = 10, .batch_size = 0}), HasSubstr("batch_size is 0"));
  EXPECT_THAT(error_of({.dataset_size = 0, .batch_size = 1}), HasSubstr("empty"));
  EXPECT_THAT(error_of({.dataset_size = 10}, {4, 4}), HasSubstr("rank 4 is outside a world of 4"));
  EXPECT_THAT(error_of({.dataset_size = 10}, {-1, 4}), HasSubstr("rank -1"));
  EXPECT_THAT(error_of({.dataset_size = 10}, {0, 0}), HasSubstr("world of 0"));
  EXPECT_THAT(error_of({.dataset_size = 100, .batch_size = 32, .remainder = Remainder::drop}, {0, 4}),
              testing::AllOf(HasSubstr("128"), HasSubstr("100")));
  EXPECT_THAT(error_of({.dataset_size = 10, .batch_size = ~std::uint64_t{0}}, {0, 2}), HasSubstr("64-bit"));
  EXPECT_THROW(Sampler({.dataset_size = 10}).batch(0, 10), UsageError);
}

}  // namespace
}  // namespace libtrain::data
