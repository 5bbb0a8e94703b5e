// What tells runs apart, on ranks as threads and under mpirun.

#include <libtrain/train/detail/run_id.hpp>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/support/on_ranks.hpp>

namespace libtrain::detail {
namespace {

using test::on_ranks;

TEST(RunId, IsTheSameOnAllRanksAndAnotherOneEveryTime) {
  on_ranks([](Communicator& communicator) {
    const auto first = agree_on_run_id(communicator);
    EXPECT_THAT(first, ::testing::MatchesRegex("[0-9a-f]{32}"));
    for (const auto& others : communicator.all_gather_bytes(first)) EXPECT_EQ(others, first);
    EXPECT_NE(agree_on_run_id(communicator), first);
  });
}

}  // namespace
}  // namespace libtrain::detail
