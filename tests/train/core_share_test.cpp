#include <gtest/gtest.h>

#include <libtrain/comm/threads/run_ranks.hpp>
#include <libtrain/train/detail/core_share.hpp>

namespace libtrain {
namespace {

TEST(CoreShare, UnboundRanksDivideTheirHost) {
  const std::set<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<detail::RankCores> ranks{{"a", all}, {"a", all}, {"b", all}};
  EXPECT_EQ(detail::fair_thread_count(ranks, 0), 4);
  EXPECT_EQ(detail::fair_thread_count(ranks, 1), 4);
  EXPECT_EQ(detail::fair_thread_count(ranks, 2), 8);
}

TEST(CoreShare, BoundRanksKeepWhatTheyWereGiven) {
  const std::vector<detail::RankCores> ranks{{"a", {0, 1}}, {"a", {2, 3, 4, 5}}, {"a", {4, 5, 6}}};
  EXPECT_EQ(detail::fair_thread_count(ranks, 0), 2);
  EXPECT_EQ(detail::fair_thread_count(ranks, 1), 3);
  EXPECT_EQ(detail::fair_thread_count(ranks, 2), 2);
}

TEST(CoreShare, IsNeverLessThanOne) {
  EXPECT_EQ(detail::fair_thread_count(std::vector<detail::RankCores>(7, {"a", {0, 1}}), 3), 1);
  EXPECT_EQ(detail::fair_thread_count({{"a", {}}}, 0), 1);
  EXPECT_EQ(detail::fair_thread_count(std::vector<detail::RankCores>(3, {"a", {0, 1, 2}}), 2), 1);
}

TEST(CoreShare, KeepsToTheQuotaOfAContainer) {
  const std::set<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<detail::RankCores> ranks{{"a", all, 4.0}, {"a", all, 4.0}, {"b", all}, {"c", all, 0.5}};
  EXPECT_EQ(detail::fair_thread_count(ranks, 0), 2);
  EXPECT_EQ(detail::fair_thread_count(ranks, 1), 2);
  EXPECT_EQ(detail::fair_thread_count(ranks, 2), 8);
  EXPECT_EQ(detail::fair_thread_count(ranks, 3), 1);
}

TEST(CoreShare, ContainersShareTheirMachineButNotTheirQuota) {
  const std::set<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<detail::RankCores> ranks{
      {"a", all, 3.0, "pod-0"}, {"a", all, 3.0, "pod-1"}, {"b", all, 3.0, "pod-0"}};
  EXPECT_EQ(detail::fair_thread_count(ranks, 0), 3);
  EXPECT_EQ(detail::fair_thread_count({{"a", all, 8.0, "pod-0"}, {"a", all, 8.0, "pod-1"}}, 1), 4);
  EXPECT_EQ(detail::fair_thread_count(ranks, 2), 3);
}

TEST(CoreShare, IsGatheredFromAllRanks) {
  run_ranks(3, [](Communicator& communicator) {
    const auto all = detail::gather_cores(communicator);
    ASSERT_EQ(all.size(), 3u);
    const auto mine = detail::my_cores();
    EXPECT_FALSE(mine.cores.empty());
    for (const auto& rank : all) {
      EXPECT_EQ(rank.machine, mine.machine);
      EXPECT_EQ(rank.host, mine.host);
      EXPECT_EQ(rank.cores, mine.cores);
      EXPECT_EQ(rank.quota, mine.quota);
    }
  });
}

}  // namespace
}  // namespace libtrain
