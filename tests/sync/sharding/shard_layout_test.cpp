#include <libtrain/sync/detail/sharding/shard_layout.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace libtrain::detail {
namespace {

TEST(ShardLayout, GivesEqualPartsAndLeavesARestToAll) {
  const ShardLayout layout{11, 1, 3};
  EXPECT_EQ(layout.part(), 3);
  EXPECT_EQ(layout.part_begin(), 3);
  EXPECT_EQ(layout.scattered(), 9);
  EXPECT_EQ(layout.rest(), 2);
  EXPECT_EQ(layout.owned(), 5);
}

TEST(ShardLayout, OneRankHasAll) {
  const ShardLayout layout{7, 0, 1};
  EXPECT_EQ(layout.owned(), 7);
  EXPECT_EQ(layout.rest(), 0);
  EXPECT_FALSE(layout.foreign_in(0, 7).has_value());
}

TEST(ShardLayout, FewerElementsThanRanksAreEveryones) {
  const ShardLayout layout{2, 3, 4};
  EXPECT_EQ(layout.part(), 0);
  EXPECT_EQ(layout.owned(), 2);
  EXPECT_FALSE(layout.foreign_in(0, 2).has_value());
}

// Which elements of [begin, begin + count) a rank owns, one by one: those of its part and of the rest.
TEST(ShardLayout, FindsWhatARankOwnsOfARun) {
  constexpr std::int64_t kElements = 14;
  for (const int world_size : {1, 2, 3, 4, 20}) {
    const auto part = kElements / world_size;
    for (int rank = 0; rank < world_size; ++rank) {
      const ShardLayout layout{kElements, rank, world_size};
      for (std::int64_t begin = 0; begin <= kElements; ++begin) {
        for (std::int64_t count = 0; begin + count <= kElements; ++count) {
          std::vector<std::int64_t> wanted;
          std::vector<std::int64_t> wanted_in_state;
          for (auto element = begin; element < begin + count; ++element) {
            const bool in_part = part > 0 && element / part == rank && element < part * world_size;
            const bool in_rest = element >= part * world_size;
            if (!in_part && !in_rest) continue;
            wanted.push_back(element);
            wanted_in_state.push_back(in_part ? element - part * rank : part + element - part * world_size);
          }
          std::vector<std::int64_t> found;
          std::vector<std::int64_t> found_in_state;
          for (const auto& run : layout.owned_in(begin, count)) {
            for (std::int64_t step = 0; step < run.count; ++step) {
              found.push_back(run.begin + step);
              found_in_state.push_back(run.in_state + step);
            }
          }
          EXPECT_EQ(found, wanted);
          EXPECT_EQ(found_in_state, wanted_in_state);
          const auto foreign = layout.foreign_in(begin, count);
          EXPECT_EQ(foreign.has_value(), static_cast<std::int64_t>(wanted.size()) < count);
          if (!foreign) continue;
          EXPECT_TRUE(*foreign >= begin && *foreign < begin + count);
          EXPECT_EQ(std::count(wanted.begin(), wanted.end(), *foreign), 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace libtrain::detail
