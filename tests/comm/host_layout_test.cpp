#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/comm/detail/hierarchy/host_layout.hpp>

namespace libtrain::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

std::string host(const char* name, const char* boot, const char* processes) {
  return HostIdentity{.name = name, .boot = boot, .processes = processes}.to_text();
}

TEST(WhyApart, NamesTheFirstRanksOfOneMachineThatDoNotSeeEachOther) {
  EXPECT_THAT(
      why_apart({host("a", "1", "p"), host("b", "2", "p"), host("pod", "2", "q")}),
      AllOf(HasSubstr("Ranks 1 and 2 run on one machine"), HasSubstr("PID namespaces differ"), HasSubstr("hostPID")));
  EXPECT_THAT(why_apart({host("pod-0", "1", "p"), host("pod-1", "1", "p")}),
              AllOf(HasSubstr("Ranks 0 and 1"), HasSubstr("host names differ"), HasSubstr("LIBTRAIN_HOST")));
}

TEST(WhyApart, IsNothingForRanksOfOneHostAndOfDifferentMachines) {
  EXPECT_EQ(why_apart({host("a", "1", "p"), host("b", "2", "p"), host("a", "1", "p"), host("b", "2", "p")}), "");
  EXPECT_EQ(why_apart({host("a", "", "p"), host("b", "", "q")}), "");
  EXPECT_EQ(why_apart({"host 0", "host 1", "host 0"}), "");
}

}  // namespace
}  // namespace libtrain::detail
