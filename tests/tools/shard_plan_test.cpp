#include <tools/pack/shard_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

namespace libtrain::pack {
namespace {

using Numbers = std::vector<std::uint64_t>;

TEST(ShardPlan, MakesAsManyShardsAsTheirSizeNeeds) {
  const Numbers bytes(10, 10);
  EXPECT_EQ(plan_shards(bytes, {.shard_bytes = 1000}), (Numbers{10}));
  EXPECT_EQ(plan_shards(bytes, {.shard_bytes = 100}), (Numbers{10}));
  EXPECT_EQ(plan_shards(bytes, {.shard_bytes = 99}), (Numbers{5, 5}));
  EXPECT_EQ(plan_shards(bytes, {.shard_bytes = 50}), (Numbers{5, 5}));
  // Four shards end nearest to bytes 25, 50, 75 and 100; a sample's middle at the very end belongs to the shard.
  EXPECT_EQ(plan_shards(bytes, {.shard_bytes = 25}), (Numbers{3, 2, 3, 2}));
}

TEST(ShardPlan, MakesTheShardsThatAreWanted) {
  // 33, 66 and 100 bytes.
  EXPECT_EQ(plan_shards(Numbers(10, 10), {.shards = 3}), (Numbers{3, 4, 3}));
  EXPECT_EQ(plan_shards(Numbers(3, 7), {.shards = 3}), (Numbers{1, 1, 1}));
  EXPECT_EQ(plan_shards(Numbers(4, 7), {.shard_bytes = 1, .shards = 1}), (Numbers{4}));
  // The middle of the second sample, at 7.5 bytes, lies beyond the 7 that are wanted.
  EXPECT_EQ(plan_shards(Numbers{4, 7, 3}, {.shards = 2}), (Numbers{1, 2}));
}

TEST(ShardPlan, GivesEveryShardASample) {
  EXPECT_EQ(plan_shards(Numbers{1, 1, 1000, 1, 1}, {.shards = 3}), (Numbers{2, 1, 2}));
  EXPECT_EQ(plan_shards(Numbers{1000, 1, 1, 1}, {.shards = 4}), (Numbers{1, 1, 1, 1}));
  EXPECT_EQ(plan_shards(Numbers{1, 1, 1, 1000}, {.shards = 4}), (Numbers{1, 1, 1, 1}));
  EXPECT_EQ(plan_shards(Numbers{0, 0, 0}, {.shards = 3}), (Numbers{1, 1, 1}));
  EXPECT_EQ(plan_shards(Numbers{0, 0, 0}, {}), (Numbers{3}));
  EXPECT_EQ(plan_shards(Numbers{50, 50}, {.shard_bytes = 1}), (Numbers{1, 1}));
}

TEST(ShardPlan, OfNothingIsEmpty) {
  EXPECT_EQ(plan_shards(Numbers{}, {}), Numbers{});
}

TEST(ShardPlan, StaysWithinASampleOfEqualShares) {
  std::mt19937 random(11);
  std::uniform_int_distribution<std::uint64_t> any_size(50, 100);
  std::uniform_int_distribution<std::size_t> any_count(100, 1000);
  for (int i = 0; i < 50; ++i) {
    Numbers bytes(any_count(random));
    for (auto& size : bytes) size = any_size(random);
    const std::uint64_t shards = 1 + static_cast<std::uint64_t>(i) % 10;
    const auto plan = plan_shards(bytes, {.shards = shards});
    ASSERT_EQ(plan.size(), shards);
    ASSERT_EQ(std::accumulate(plan.begin(), plan.end(), std::uint64_t{0}), bytes.size());
    const auto share = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0})) /
                       static_cast<double>(shards);
    auto sample = bytes.begin();
    for (const std::uint64_t samples : plan) {
      const auto end = sample + static_cast<std::ptrdiff_t>(samples);
      // Half a sample, and less than a byte that rounding takes, at each of its ends.
      EXPECT_NEAR(static_cast<double>(std::accumulate(sample, end, std::uint64_t{0})), share, 102);
      sample = end;
    }
  }
}

TEST(ShardPlan, DoesNotOverflow) {
  const std::uint64_t half = std::uint64_t{1} << 62;
  EXPECT_EQ(plan_shards(Numbers{half, half, half}, {.shards = 3}), (Numbers{1, 1, 1}));
  EXPECT_EQ(plan_shards(Numbers{half, half}, {.shard_bytes = half}), (Numbers{1, 1}));
}

TEST(ShardPlan, RefusesWhatCannotBe) {
  EXPECT_THROW(plan_shards(Numbers(3, 7), {.shards = 4}), UsageError);
  EXPECT_THROW(plan_shards(Numbers{}, {.shards = 1}), UsageError);
  EXPECT_THROW(plan_shards(Numbers(3, 7), {.shard_bytes = 0}), UsageError);
}

}  // namespace
}  // namespace libtrain::pack
