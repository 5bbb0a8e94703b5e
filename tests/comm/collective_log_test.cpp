#include <libtrain/comm/detail/collective_log.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace libtrain::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using State = CollectiveRecord::State;
using std::chrono::milliseconds;
using Clock = WorkTimes::Clock;

const auto kNow = Clock::time_point{} + std::chrono::hours(7);
const std::string kBucket = "all_reduce of 44 float32 (average) for bucket 1 of 3 ('a.weight' to 'b, for c.bias')";

CollectiveRecord done(std::uint64_t number, const std::string& what) {
  return {.sequence = number,
          .what = what,
          .state = State::done,
          .times = {kNow - milliseconds(12500), kNow - milliseconds(12400), kNow - milliseconds(12000)}};
}

CollectiveRecord running(std::uint64_t number, const std::string& what) {
  return {.sequence = number,
          .what = what,
          .state = State::running,
          .times = {kNow - milliseconds(3500), kNow - milliseconds(3250), {}}};
}

CollectiveRecord queued(std::uint64_t number, const std::string& what) {
  return {.sequence = number, .what = what, .state = State::queued, .times = {kNow - milliseconds(1000), {}, {}}};
}

CollectiveRecord failed(std::uint64_t number, const std::string& what) {
  auto record = running(number, what);
  record.state = State::failed;
  record.times.ended = kNow - milliseconds(1);
  return record;
}

TEST(Position, AreInTheFirstCollectiveThatHasNotSucceeded) {
  const auto here = position_of({done(7, "barrier"), running(8, kBucket), queued(9, "barrier")}, kNow);
  EXPECT_EQ(here.place, "in " + kBucket + " (collective number 8)");
  EXPECT_DOUBLE_EQ(here.seconds, 3.25);
  // A rank that has failed in it is at the same place as one that still waits.
  EXPECT_EQ(position_of({done(7, "barrier"), failed(8, kBucket), failed(9, "barrier")}, kNow).place, here.place);
  EXPECT_DOUBLE_EQ(position_of({queued(9, "barrier")}, kNow).seconds, 1);
}

TEST(Position, AreOutsideWhereAllHaveSucceeded) {
  const auto here = position_of({done(7, kBucket), done(8, "barrier")}, kNow);
  EXPECT_EQ(here.place, "outside of collectives, after barrier (collective number 8)");
  EXPECT_DOUBLE_EQ(here.seconds, 12);
  EXPECT_EQ(position_of({}, kNow).place, "before its first collective");
}

TEST(Position, KnowWhatIsUnderWay) {
  EXPECT_FALSE(any_under_way({}));
  EXPECT_FALSE(any_under_way({done(7, "barrier"), failed(8, "barrier")}));
  EXPECT_TRUE(any_under_way({done(7, "barrier"), running(8, "barrier")}));
  EXPECT_TRUE(any_under_way({queued(7, "barrier")}));
}

CollectiveLog log_of(std::vector<CollectiveRecord> records) {
  return {.run = "1234abcd",
          .who = "rank 2 of 3 on node7 (process 4242)",
          .failure = "failed: It is broken.\nThis rank is confused, for ever s",
          .records = std::move(records),
          .now = kNow};
}

TEST(CollectiveLog, HasARowForEachCollective) {
  const auto log = to_text(log_of({done(7, "barrier"), running(108, kBucket), queued(109, "split")}));
  EXPECT_THAT(log, StartsWith("run 1234abcd\nrank 2 of 3 on node7 (process 4242)\nfailed: It is broken.\n"));
  EXPECT_THAT(log, HasSubstr("\n       7  done        -12500.0    -12400.0    -12000.0  barrier\n"));
  EXPECT_THAT(log, HasSubstr("\n     108  running      -3500.0     -3250.0           -  " + kBucket + "\n"));
  EXPECT_THAT(log, HasSubstr("\n     109  queued       -1000.0           -           -  split\n"));
  EXPECT_THAT(log, HasSubstr("\n  number  state         called       began       ended  what\n"));
}

TEST(CollectiveLog, EndsWithWhereTheRankIs) {
  const auto log = to_text(log_of({done(7, "barrier"), running(8, kBucket)}));
  const std::string last = "\nThis rank is in " + kBucket + " (collective number 8), for 3.250 s\n";
  ASSERT_GE(log.size(), last.size());
  EXPECT_EQ(log.substr(log.size() - last.size()), last);
  const auto here = find_position(log, "1234abcd");
  ASSERT_TRUE(here);
  EXPECT_EQ(here->place, "in " + kBucket + " (collective number 8)");
  EXPECT_DOUBLE_EQ(here->seconds, 3.25);
}

TEST(CollectiveLog, OfAnotherRunOrCutShortIsNone) {
  const auto log = to_text(log_of({done(7, "barrier")}));
  EXPECT_TRUE(find_position(log, "1234abcd"));
  EXPECT_FALSE(find_position(log, "1234abcde"));
  EXPECT_FALSE(find_position(log, "1234abc"));
  EXPECT_FALSE(find_position("", "1234abcd"));
  EXPECT_FALSE(find_position("run 1234abcd\n", "1234abcd"));
  EXPECT_FALSE(find_position("run 1234abcd\n\nThis rank is in ba", "1234abcd"));
}

TEST(Places, AreToldOnceWithTheirRanks) {
  const Position bucket{.place = "in bucket (collective number 8)", .seconds = 3};
  const Position later{.place = bucket.place, .seconds = 3.14};
  const Position outside{.place = "outside of collectives, after barrier (collective number 7)", .seconds = 12};
  EXPECT_EQ(describe_places({bucket, std::nullopt, later, outside}),
            "ranks 0 and 2: in bucket (collective number 8), for 3.1 s\n"
            "rank 3: outside of collectives, after barrier (collective number 7), for 12.0 s\n"
            "rank 1: no collective log found (the rank is stopped, has exited, failed for a different reason, or "
            "writes to a disk that this host cannot read)");
  EXPECT_EQ(describe_places({outside}),
            "rank 0: outside of collectives, after barrier (collective number 7), for 12.0 s");
}

TEST(Places, AreEmptyWhereNothingIsKnown) {
  EXPECT_EQ(describe_places({}), "");
  EXPECT_EQ(describe_places({std::nullopt, std::nullopt}), "");
}

TEST(Places, AreNoMoreThanOneWouldRead) {
  std::vector<std::optional<Position>> ranks;
  for (int rank = 0; rank < 15; ++rank) ranks.push_back(Position{.place = "in place " + std::to_string(rank)});
  const auto words = describe_places(ranks);
  EXPECT_THAT(words, HasSubstr("rank 9: in place 9, for 0.0 s\nand 5 more places"));
  EXPECT_EQ(words.find("place 10"), std::string::npos);
}

}  // namespace
}  // namespace libtrain::detail
