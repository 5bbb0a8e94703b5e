#include <libtrain/data/sources/shard_table.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using detail::ShardTable;
using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Sizes = std::vector<std::uint64_t>;

TEST(ShardTable, NumbersImagesShardAfterShard) {
  const ShardTable table("set", {2, 0, 3, 0, 0, 1, 0});
  ASSERT_EQ(table.size(), 6U);
  EXPECT_EQ(table.name(), "set");
  std::vector<std::size_t> shards;
  std::vector<std::uint64_t> positions;
  for (std::uint64_t i = 0; i < 6; ++i) {
    shards.push_back(table.place(i).shard);
    positions.push_back(table.place(i).position);
  }
  EXPECT_THAT(shards, ElementsAre(0U, 0U, 2U, 2U, 2U, 5U));
  EXPECT_THAT(positions, ElementsAre(0U, 1U, 0U, 1U, 2U, 0U));
}

TEST(ShardTable, FindsWhatCountingFinds) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    Sizes sizes{1};
    for (std::size_t i = random() % 20; i > 0; --i) sizes.push_back(random() % 4);
    const ShardTable table("set", sizes);
    std::uint64_t index = 0;
    for (std::size_t shard = 0; shard < sizes.size(); ++shard) {
      for (std::uint64_t position = 0; position < sizes[shard]; ++position, ++index) {
        ASSERT_EQ(table.place(index).shard, shard);
        ASSERT_EQ(table.place(index).position, position);
      }
    }
    EXPECT_EQ(table.size(), index);
  }
}

TEST(ShardTable, GivesBlocksWithoutTheEmptyShards) {
  EXPECT_THAT(ShardTable("set", {0, 2, 0, 3}).blocks(), ElementsAre(2U, 3U));
}

TEST(ShardTable, RefusesAnImageBeyondTheLast) {
  const ShardTable table("memory://set", {2, 1});
  EXPECT_THAT(message_of<UsageError>([&] { table.place(3); }),
              AllOf(HasSubstr("Image 3"), HasSubstr("'memory://set'"), HasSubstr("3 images")));
}

TEST(ShardTable, RefusesASetWithoutImages) {
  for (const Sizes& sizes : {Sizes{}, Sizes{0}, Sizes{0, 0}}) {
    EXPECT_THAT(message_of<EnvironmentError>([&] { ShardTable("memory://set", sizes); }),
                AllOf(HasSubstr("'memory://set'"), HasSubstr("found none")));
  }
}

TEST(ShardTable, RefusesMoreImagesThanCanBeCounted) {
  const std::uint64_t half = std::uint64_t{1} << 63;
  EXPECT_EQ(ShardTable("set", {half, half - 1}).size(), ~std::uint64_t{0});
  EXPECT_THAT(message_of<EnvironmentError>([&] { ShardTable("memory://set", {half, half}); }),
              AllOf(HasSubstr("'memory://set'"), HasSubstr("2^64")));
}

}  // namespace
}  // namespace libtrain::data
