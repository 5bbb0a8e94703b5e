#include <libtrain/data/loader/loader_statistics.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
}

TEST(LoaderStatistics, AreDescribedInASentence) {
  EXPECT_THAT(describe(statistics(12, 20, 70, 10)),
              AllOf(HasSubstr("waited 12.0 s of 60.0 s (20%)"), HasSubstr("decoding is the bottleneck"),
                    HasSubstr("58% of the time of 2 threads"), HasSubstr("more workers")));
  EXPECT_THAT(describe(statistics(12, 70, 20, 10)), AllOf(HasSubstr("reading is the"), HasSubstr("--cache")));
  EXPECT_THAT(describe(statistics(1, 1, 1, 1)), HasSubstr("the model is the bottleneck"));
  EXPECT_EQ(describe({}), "No batch was taken.");
}

TEST(LoaderStatistics, AddUp) {
  auto sum = statistics(12, 20, 70, 10);
  sum.ready_batches = 1;
  auto other = statistics(3, 1, 2, 3, 4);
  other.batches = 30;
  other.ready_batches = 3;
  other.read = {.bytes = 5, .cache_hits = 6, .cache_misses = 7};
  sum += other;
  EXPECT_EQ(sum.workers, 2);
  EXPECT_EQ(sum.batches, 40u);
  EXPECT_EQ(sum.seconds, 120);
  EXPECT_EQ(sum.seconds_waiting, 15);
  EXPECT_EQ(sum.stage_seconds, (std::array<double, kLoaderStages>{21, 72, 13, 4}));
  EXPECT_EQ(sum.worker_seconds_waiting, 40);
  EXPECT_EQ(sum.ready_batches, 2.5);
  EXPECT_EQ(sum.read.bytes, 5u);
  EXPECT_EQ(sum.read.cache_hits, 6u);
  EXPECT_EQ(sum.read.cache_misses, 7u);
}

}  // namespace
}  // namespace libtrain::data
