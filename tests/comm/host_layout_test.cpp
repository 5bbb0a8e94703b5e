#include <gtest/gtest.h>

#include <libtrain/comm/hierarchy/host_layout.hpp>

namespace libtrain::detail {
namespace {

TEST(HostLayout, NumbersHostsByTheirLowestRankAndRanksInOrder) {
  const HostLayout layout{{"b", "a", "b", "c", "a", "b"}};
  EXPECT_EQ(layout.host_count(), 3);
  EXPECT_EQ(layout.members(0), (std::vector<int>{0, 2, 5}));
  EXPECT_EQ(layout.members(1), (std::vector<int>{1, 4}));
  EXPECT_EQ(layout.members(2), (std::vector<int>{3}));
  EXPECT_EQ(layout.host_of(4), 1);
  EXPECT_EQ(layout.local_rank_of(4), 1);
  EXPECT_EQ(layout.local_rank_of(5), 2);
  EXPECT_FALSE(layout.is_even());
}

TEST(HostLayout, KnowsEvenHosts) {
  EXPECT_TRUE(HostLayout({"a", "b", "a", "b"}).is_even());
  EXPECT_TRUE(HostLayout({"a", "a", "a"}).is_even());
  EXPECT_TRUE(HostLayout({"a", "b", "c"}).is_even());
}

}  // namespace
}  // namespace libtrain::detail
