#include <tools/common/ordered_prefetcher.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace libtrain::tools {
namespace {

using Prefetcher = OrderedPrefetcher<std::uint64_t>;

std::uint64_t square(std::uint64_t number, const std::stop_token&) {
  return number * number;
}

std::uint64_t until_stopped(std::uint64_t, const std::stop_token& stop) {
  while (!stop.stop_requested()) std::this_thread::yield();
  return 0;
}

TEST(OrderedPrefetcher, HandsOutValuesInOrderWhateverTheWorkers) {
  for (const int workers : {0, 1, 3, 8}) {
    for (const std::uint64_t window : {1, 2, 24}) {
      Prefetcher prefetcher(5, 205, workers, window, square);
      for (std::uint64_t i = 5; i < 205; ++i) ASSERT_EQ(prefetcher.next(), i * i);
      EXPECT_EQ(prefetcher.next(), std::nullopt);
      EXPECT_EQ(prefetcher.next(), std::nullopt);
    }
  }
}

TEST(OrderedPrefetcher, OfAnEmptyRangeHasNoValues) {
  EXPECT_EQ(Prefetcher(3, 3, 2, 4, square).next(), std::nullopt);
  EXPECT_EQ(Prefetcher(4, 3, 2, 4, square).next(), std::nullopt);
}

TEST(OrderedPrefetcher, LaterValuesWaitForAnEarlierSlowOne) {
  std::latch others_done(3);
  Prefetcher prefetcher(0, 4, 2, 4, [&](std::uint64_t number, const std::stop_token&) {
    if (number == 0) {
      others_done.wait();
    } else {
      others_done.count_down();
    }
    return number;
  });
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(prefetcher.next(), i);
}

TEST(OrderedPrefetcher, NeverRunsFurtherAheadThanItsWindow) {
  std::atomic<std::uint64_t> taken = 0, furthest = 0;
  Prefetcher prefetcher(0, 500, 4, 6, [&](std::uint64_t number, const std::stop_token&) {
    // `taken` lags behind what was handed out by one at most.
    const std::uint64_t ahead = number - std::min(number, taken.load());
    std::uint64_t seen = furthest.load();
    while (ahead > seen && !furthest.compare_exchange_weak(seen, ahead)) {
    }
    return number;
  });
  while (prefetcher.next()) ++taken;
  EXPECT_LE(furthest.load(), 6u);
}

TEST(OrderedPrefetcher, AnErrorArrivesAtItsPositionAndEndsTheValues) {
  for (const int workers : {0, 1, 4}) {
    Prefetcher prefetcher(0, 100, workers, 8, [](std::uint64_t number, const std::stop_token&) {
      if (number == 7) throw std::runtime_error("number 7");
      return number;
    });
    for (std::uint64_t i = 0; i < 7; ++i) ASSERT_EQ(prefetcher.next(), i);
    EXPECT_THROW(prefetcher.next(), std::runtime_error);
    EXPECT_EQ(prefetcher.next(), std::nullopt);
  }
}

TEST(OrderedPrefetcher, DestructionStopsWorkersThatAreProducing) {
  const auto start = std::chrono::steady_clock::now();
  {
    const Prefetcher prefetcher(0, 100, 4, 8, until_stopped);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(100));
}

TEST(OrderedPrefetcher, DestructionStopsWorkersThatWaitForRoom) {
  for (int i = 0; i < 200; ++i) {
    Prefetcher prefetcher(0, 100, 4, 2, square);
    for (int taken = 0; taken < i % 3; ++taken) EXPECT_TRUE(prefetcher.next().has_value());
  }
}

}  // namespace
}  // namespace libtrain::tools
