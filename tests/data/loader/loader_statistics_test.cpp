#include <libtrain/data/loader/loader_statistics.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/data/loader/batch_engine.hpp>

namespace libtrain::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LoaderStatistics statistics(double waiting, double read, double decode, double transform, double collate = 0) {
  return {.workers = 2,
          .batches = 10,
          .seconds = 60,
          .seconds_waiting = waiting,
          .stage_seconds = {read, decode, transform, collate},
          .worker_seconds_waiting = 20};
}

TEST(LoaderStatistics, NameTheBottleneck) {
  EXPECT_EQ(LoaderStatistics{}.bottleneck(), LoaderBottleneck::unknown);
  EXPECT_EQ(statistics(1, 50, 40, 10).bottleneck(), LoaderBottleneck::model);
  EXPECT_EQ(statistics(12, 50, 40, 10).bottleneck(), LoaderBottleneck::reading);
  EXPECT_EQ(statistics(12, 20, 70, 10).bottleneck(), LoaderBottleneck::decoding);
  EXPECT_EQ(statistics(12, 20, 30, 25, 25).bottleneck(), LoaderBottleneck::transform);
  EXPECT_EQ(statistics(12, 30, 20, 25, 25).bottleneck(), LoaderBottleneck::transform);
}

TEST(LoaderStatistics, BlameTheLoaderForWaitsOfMoreThanATwentiethOfTheTime) {
  EXPECT_EQ(statistics(3, 50, 40, 10).bottleneck(), LoaderBottleneck::model);
  EXPECT_EQ(statistics(3.01, 50, 40, 10).bottleneck(), LoaderBottleneck::reading);
}

TEST(LoaderStatistics, AreDescribedInASentence) {
  EXPECT_THAT(describe(statistics(12, 20, 70, 10)),
              AllOf(HasSubstr("waited 12.0 s of 60.0 s (20%)"), HasSubstr("decoding is the bottleneck"),
                    HasSubstr("58% of the time of 2 threads"), HasSubstr("more workers")));
  EXPECT_THAT(describe(statistics(12, 70, 20, 10)),
              AllOf(HasSubstr("reading is the"), HasSubstr("58%"), HasSubstr("--cache")));
  // 50 s of the 100 s of work and the 20 s of waiting.
  EXPECT_THAT(describe(statistics(12, 20, 30, 25, 25)),
              AllOf(HasSubstr("transforming is the bottleneck (42% of"), HasSubstr("fewer augmentations")));
  auto without_workers = statistics(12, 20, 70, 10);
  without_workers.workers = 0;
  EXPECT_THAT(describe(without_workers), HasSubstr("of the time of 1 thread)"));
  EXPECT_THAT(describe(statistics(1, 1, 1, 1)), HasSubstr("the model is the bottleneck"));
  EXPECT_EQ(describe({}), "No batch was taken.");
}

TEST(LoaderStatistics, AddUp) {
  auto sum = statistics(12, 20, 70, 10);
  sum.ready_batches = 1;
  sum.samples = 100;
  sum.bad_samples = 2;
  sum.batch_slots = 3;
  auto other = statistics(3, 1, 2, 3, 4);
  other.workers = 4;
  other.batches = 30;
  other.samples = 7;
  other.bad_samples = 3;
  other.batch_slots = 5;
  other.ready_batches = 3;
  other.read = {.bytes = 5, .cache_hits = 6, .cache_misses = 7};
  sum += other;
  EXPECT_EQ(sum.workers, 4);
  EXPECT_EQ(sum.batch_slots, 5u);
  EXPECT_EQ(sum.batches, 40u);
  EXPECT_EQ(sum.samples, 107u);
  EXPECT_EQ(sum.bad_samples, 5u);
  EXPECT_EQ(sum.seconds, 120);
  EXPECT_EQ(sum.seconds_waiting, 15);
  EXPECT_EQ(sum.stage_seconds, (std::array<double, kLoaderStages>{21, 72, 13, 4}));
  EXPECT_EQ(sum.worker_seconds_waiting, 40);
  EXPECT_EQ(sum.ready_batches, 2.5);
  EXPECT_EQ(sum.read.bytes, 5u);
  EXPECT_EQ(sum.read.cache_hits, 6u);
  EXPECT_EQ(sum.read.cache_misses, 7u);
  LoaderStatistics nothing;
  nothing += LoaderStatistics{};
  EXPECT_EQ(nothing.ready_batches, 0);
}

void spin(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// The third batch does not become ready before it may.
class Held : public detail::BatchMaker {
 public:
  void open(std::size_t /*slot*/, std::span<const std::uint64_t> /*indices*/) override {}
  void fill(std::size_t /*slot*/, std::uint64_t /*place*/, std::uint64_t /*index*/) override {}
  void close(std::size_t slot, std::span<const std::uint64_t> /*indices*/) override {
    if (slot != 2) return;
    closing.count_down();
    may_close.wait();
  }

  std::latch closing{1};
  std::latch may_close{1};
};

TEST(LoaderStatistics, OfAnEngineCountWhatLayReadyAndEndWithTheLastBatch) {
  Held work;
  const auto one_sample = [](std::uint64_t batch) { return std::vector<std::uint64_t>{batch}; };
  detail::BatchEngine engine(work, {.batches = 3, .workers = 1, .slots = 4, .indices = one_sample});
  work.closing.wait();  // the only worker is at the third batch: two are ready
  for (int batch = 0; batch < 2; ++batch) {
    EXPECT_TRUE(engine.next().has_value());
    engine.give_back();
  }
  EXPECT_EQ(engine.statistics().ready_batches, 1.5);  // two, then one
  EXPECT_EQ(engine.statistics().batch_slots, 4u);
  work.may_close.count_down();
  EXPECT_TRUE(engine.next().has_value());
  engine.give_back();
  const double seconds = engine.statistics().seconds;
  spin(std::chrono::milliseconds(1));
  EXPECT_EQ(engine.statistics().seconds, seconds);
}

TEST(StageClock, ChargesTheInnermostStageWhileItRuns) {
  using std::chrono::milliseconds;
  StageClock clock;
  const auto start = std::chrono::steady_clock::now();
  clock.resume();
  {
    const StageScope decoding(LoaderStage::decode);
    {
      const StageScope transforming(LoaderStage::transform);
      spin(milliseconds(3));
    }
    spin(milliseconds(5));
  }
  spin(milliseconds(7));
  clock.pause();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  {
    const StageScope decoding(LoaderStage::decode);
    spin(milliseconds(1));
  }
  const auto& seconds = clock.seconds();
  EXPECT_GE(seconds[static_cast<std::size_t>(LoaderStage::transform)], 0.003);
  EXPECT_GE(seconds[static_cast<std::size_t>(LoaderStage::decode)], 0.005);
  EXPECT_GE(seconds[static_cast<std::size_t>(LoaderStage::read)], 0.007);
  EXPECT_LE(seconds[0] + seconds[1] + seconds[2] + seconds[3], passed.count());
}

}  // namespace
}  // namespace libtrain::data
