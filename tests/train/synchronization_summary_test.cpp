// What a run's summary says of its communication, on ranks as threads and under mpirun.

#include <libtrain/train/synchronization_summary.hpp>

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <nlohmann/json.hpp>

#include <libtrain/launch/launch.hpp>

#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using detail::summary_of;
using detail::to_text;
using test::expect_all;
using test::on_ranks;
using test::Pair;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kRunSeconds = 100;

// 1000 rounds in which a rank waited so long.
SynchronizationStatistics waiting(double seconds) {
  return {.rounds = 1000, .seconds_waiting = seconds, .seconds_reducing = 20};
}

TEST(SynchronizationSummary, SaysWhatTheRankThatWaitedMostWaited) {
  const auto summary = summary_of({waiting(2), waiting(3), waiting(2.5)}, kRunSeconds);
  EXPECT_EQ(summary.rounds, 1000);
  EXPECT_DOUBLE_EQ(summary.ms_per_step, 100);
  EXPECT_DOUBLE_EQ(summary.exposed_communication_ms_per_step, 3);
  EXPECT_DOUBLE_EQ(summary.overlap_share, 1 - 7.5 / 60);
}

TEST(SynchronizationSummary, NamesTheRankThatTheOthersWaitFor) {
  const auto summary = summary_of({waiting(11), waiting(9), waiting(1)}, kRunSeconds);
  EXPECT_EQ(summary.slowest_rank, 2);
  EXPECT_DOUBLE_EQ(summary.seconds_waiting_for_slowest, 9);
  EXPECT_EQ(summary_of({waiting(0.5), waiting(4)}, kRunSeconds).slowest_rank, 0);
}

TEST(SynchronizationSummary, NamesNoRankForDifferencesThatMeanNothing) {
  EXPECT_FALSE(summary_of({waiting(5), waiting(3.5)}, kRunSeconds).slowest_rank.has_value());
  EXPECT_FALSE(summary_of({waiting(5), waiting(5)}, kRunSeconds).slowest_rank.has_value());
  EXPECT_FALSE(summary_of({waiting(5)}, kRunSeconds).slowest_rank.has_value());
}

TEST(SynchronizationSummary, TakesABucketsSpeedWhereItWaitedLeast) {
  auto early = waiting(5);
  early.buckets = {{.bytes = 1000, .seconds_reducing = 2, .reductions = 4},
                   {.bytes = 50, .seconds_reducing = 1, .reductions = 4}};
  auto late = waiting(1);
  late.buckets = {{.bytes = 1000, .seconds_reducing = 0.5, .reductions = 4},
                  {.bytes = 50, .seconds_reducing = 4, .reductions = 4}};
  EXPECT_THAT(summary_of({early, late}, kRunSeconds).bucket_bytes_per_s, ElementsAre(DoubleEq(8000), DoubleEq(200)));
}

TEST(SynchronizationSummary, OfARunWithoutRoundsIsEmpty) {
  const auto summary = summary_of({{}, {}}, kRunSeconds);
  EXPECT_EQ(summary.rounds, 0);
  EXPECT_EQ(summary.exposed_communication_ms_per_step, 0);
  EXPECT_EQ(summary.overlap_share, 1);
  EXPECT_THAT(summary.bucket_bytes_per_s, ElementsAre());
  EXPECT_FALSE(summary.slowest_rank.has_value());
}

TEST(SynchronizationSummary, FitsOneLine) {
  EXPECT_EQ(to_text(summary_of({waiting(11), waiting(9), waiting(1)}, kRunSeconds)),
            "11.0 ms of the run's 100.0 ms per step were exposed communication (65% overlapped); rank 2 is the "
            "slowest: the others "
            "waited 9.0 s for it");
  EXPECT_THAT(to_text(summary_of({waiting(1), waiting(1)}, kRunSeconds)), Not(HasSubstr("slowest")));
}

TEST(SynchronizationSummary, JoinsTheSummaryOfTheRunOnAllRanks) {
  on_ranks([](Communicator& communicator) {
    Context context{{std::shared_ptr<Communicator>{std::shared_ptr<void>{}, &communicator}}, {.quiet = true}};
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .replan = false}};
    for (int round = 0; round < 5; ++round) {
      model.loss(1, 1).backward();
      synchronizer.wait();
      expect_all(model.left.grad(), 1, "left");  // on a device, the round has ended now
      synchronizer.zero_grad();
    }
    summarize(context, synchronizer);
    const auto line_of_summary = context.summary().line(0);
    const auto summary = nlohmann::json::parse(line_of_summary);
    EXPECT_EQ(summary.at("ranks").get<int>(), communicator.world_size());
    const auto& costs = summary.at("synchronization");
    EXPECT_EQ(costs.at("rounds").get<int>(), 5);
    EXPECT_GE(costs.at("exposed_communication_ms_per_step").get<double>(), 0);
    EXPECT_GE(costs.at("overlap_share").get<double>(), 0);
    EXPECT_LE(costs.at("overlap_share").get<double>(), 1);
    const auto speeds = costs.at("bucket_bytes_per_s").get<std::vector<double>>();
    ASSERT_EQ(speeds.size(), 2u);
    for (const double speed : speeds) EXPECT_EQ(speed > 0, communicator.world_size() > 1);
    const auto& slowest = costs.at("slowest_rank");
    EXPECT_TRUE(slowest.is_null() || slowest.get<int>() < communicator.world_size());
    // Numbers of all ranks, and so the same on all.
    for (const auto& other : communicator.all_gather_bytes(costs.dump())) EXPECT_EQ(other, costs.dump());
  });
}

TEST(SynchronizationSummary, KeepsSeveralSynchronizersApart) {
  on_ranks([](Communicator& communicator) {
    Context context{{std::shared_ptr<Communicator>{std::shared_ptr<void>{}, &communicator}}, {.quiet = true}};
    Pair generator;
    Pair critic;
    const GradientSynchronizer first{generator, communicator};
    const GradientSynchronizer second{critic, communicator};
    summarize(context, first, "generator");
    summarize(context, second, "critic");
    const auto summary = nlohmann::json::parse(context.summary().line(0));
    EXPECT_EQ(summary.at("generator").at("rounds").get<int>(), 0);
    EXPECT_EQ(summary.at("critic").at("rounds").get<int>(), 0);
  });
}

}  // namespace
}  // namespace libtrain
