#include <gtest/gtest.h>

#include <libtrain/sync/detail/round_status.hpp>

namespace libtrain::detail {
namespace {

TEST(RoundReport, TravelsAsBytes) {
  const RoundReport report{.failure = "It failed.", .missing = {"a", "b.weight"}, .non_finite = {"c"}};
  const auto copy = RoundReport::from_bytes(report.to_bytes());
  EXPECT_EQ(copy.failure, report.failure);
  EXPECT_EQ(copy.missing, report.missing);
  EXPECT_EQ(copy.non_finite, report.non_finite);
  EXPECT_TRUE(RoundReport::from_bytes("").failure.empty());
}

TEST(RoundReport, NamesRanksWhereTheyDiffer) {
  const RoundReport nothing;
  EXPECT_EQ(describe_missing({nothing, nothing}, 9), "");
  EXPECT_NE(describe_missing({{.missing = {"a"}}, nothing, {.missing = {"a"}}}, 9).find("ranks 0 and 2: 1 of 9"),
            std::string::npos);
  const auto different = describe_missing({{.missing = {"a", "b"}}, {.missing = {"c"}}}, 9);
  EXPECT_NE(different.find("rank 0: 2 of 9 parameters ('a', 'b'); rank 1: 1 of 9 parameters ('c')"), std::string::npos);
}

TEST(RoundReport, SaysOnceWhatAllRanksSay) {
  EXPECT_EQ(describe_failures({{.failure = "Wrong."}, {.failure = "Wrong."}}), "Wrong.");
  EXPECT_EQ(describe_failures({{.failure = "Wrong."}, {}}), "rank 0: Wrong.");
  EXPECT_EQ(describe_failures({{}, {}}), "");
}

TEST(RoundReport, LeavesOutNamesThatNobodyWouldRead) {
  RoundReport many;
  for (int index = 0; index < 100; ++index) many.non_finite.push_back("p" + std::to_string(index));
  const auto text = describe_non_finite({many}, 7);
  EXPECT_NE(text.find("round 7"), std::string::npos);
  EXPECT_NE(text.find("'p19', and 80 more"), std::string::npos);
  EXPECT_EQ(text.find("'p20'"), std::string::npos);
}

}  // namespace
}  // namespace libtrain::detail
