// What a synchronizer says of its costs, on ranks as threads and under mpirun.

#include <mutex>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/base/text.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::expect_all;
using test::on_ranks;
using test::Pair;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SynchronizationStatistics, GivesTheSpeedOfABucket) {
  EXPECT_EQ(BucketStatistics{}.bytes_per_s(), 0);
  EXPECT_DOUBLE_EQ((BucketStatistics{.bytes = 1000, .seconds_reducing = 0.5, .reductions = 4}.bytes_per_s()), 8000);
}

TEST(SynchronizationStatistics, GivesTheShareOfCommunicationThatNobodyWaitedFor) {
  const auto share = [](double waiting, double reducing) {
    return SynchronizationStatistics{.seconds_waiting = waiting, .seconds_reducing = reducing}.overlap_share();
  };
  EXPECT_DOUBLE_EQ(share(1, 4), 0.75);
  EXPECT_DOUBLE_EQ(share(0, 4), 1);
  EXPECT_DOUBLE_EQ(share(0, 0), 1);
  // Waiting for slower ranks counts as waiting, too.
  EXPECT_DOUBLE_EQ(share(5, 4), 0);
}

// On a device, each round has ended when its gradients have been read.
void run_rounds(Pair& model, GradientSynchronizer& synchronizer, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    model.loss(1, 1).backward();
    synchronizer.wait();
    expect_all(model.left.grad(), 1, "left");
    synchronizer.zero_grad();
  }
}

TEST(SynchronizerStatistics, CountRoundsAndReductions) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .replan = false}};
    EXPECT_EQ(synchronizer.rounds(), 0);
    EXPECT_EQ(synchronizer.statistics().overlap_share(), 1);
    run_rounds(model, synchronizer, 5);
    EXPECT_EQ(synchronizer.rounds(), 5);
    const auto statistics = synchronizer.statistics();
    EXPECT_EQ(statistics.rounds, 5);
    EXPECT_GE(statistics.seconds_waiting, 0);
    EXPECT_GE(statistics.overlap_share(), 0);
    EXPECT_LE(statistics.overlap_share(), 1);
    ASSERT_EQ(statistics.buckets.size(), 2u);
    for (const auto& bucket : statistics.buckets) {
      EXPECT_EQ(bucket.bytes, 16u);
      // A single rank reduces nothing.
      EXPECT_EQ(bucket.reductions, communicator.world_size() == 1 ? 0 : 5);
      EXPECT_GE(bucket.seconds_reducing, 0);
    }
  });
}

TEST(SynchronizerStatistics, SumUpTheBuckets) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .replan = false}};
    run_rounds(model, synchronizer, 5);
    const auto statistics = synchronizer.statistics();
    double sum = 0;
    for (const auto& bucket : statistics.buckets) sum += bucket.seconds_reducing;
    EXPECT_NEAR(statistics.seconds_reducing, sum, 1e-9);
  });
}

// Keeps what it is told, as text.
class RecordedTrace : public TraceSink {
 public:
  void span(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
            std::string_view detail) noexcept override {
    const std::lock_guard lock(mutex_);
    ends_before_it_begins_ = ends_before_it_begins_ || end < begin;
    spans_ += text(lane, ": ", name, " ", detail, "\n");
  }

  std::string spans() const { return spans_; }
  bool ends_before_it_begins() const { return ends_before_it_begins_; }

 private:
  std::mutex mutex_;
  std::string spans_;
  bool ends_before_it_begins_ = false;
};

TEST(SynchronizerStatistics, AreTracedBucketByBucket) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    RecordedTrace trace;
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .trace = &trace}};
    run_rounds(model, synchronizer, 2);
    EXPECT_FALSE(trace.ends_before_it_begins());
    for (const char* part :
         {"communication: bucket 0", "communication: bucket 1", "'left'", "'right'", "wait", "copy"}) {
      EXPECT_THAT(trace.spans(), HasSubstr(part));
    }
  });
}

TEST(SynchronizerStatistics, NameEveryParameterFromTheLastToTheFirst) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    model.left.set_requires_grad(false);
    const GradientSynchronizer synchronizer{model, communicator};
    EXPECT_THAT(synchronizer.parameter_names(), ElementsAre("right", "left"));
    ASSERT_EQ(synchronizer.buckets().size(), 1u);
    EXPECT_THAT(synchronizer.buckets().front().members, ElementsAre(0u));
    EXPECT_EQ(synchronizer.buckets().front().bytes, 16u);
  });
}

}  // namespace
}  // namespace libtrain
