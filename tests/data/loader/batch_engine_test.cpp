#include <libtrain/data/loader/batch_engine.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/detail/stop_scope.hpp>

namespace libtrain::data::detail {
namespace {

using Batches = std::vector<std::vector<std::uint64_t>>;

// Batch b has sizes[b] samples, whose indices are 1000 b, 1000 b + 1, ...
Batches indices_of(const std::vector<std::uint64_t>& sizes) {
  Batches result;
  for (std::uint64_t batch = 0; batch < sizes.size(); ++batch) {
    auto& values = result.emplace_back();
    for (std::uint64_t sample = 0; sample < sizes[batch]; ++sample) values.push_back(1000 * batch + sample);
  }
  return result;
}

// Makes batches of the indices of their samples.
class Numbers : public BatchMaker {
 public:
  Numbers(const std::vector<std::uint64_t>& sizes, std::size_t slots) : batches_(indices_of(sizes)), slots_(slots) {}

  BatchEngineOptions options(int workers) {
    return {
        .batches = batches_.size(), .workers = workers, .slots = slots_.size(), .indices = [this](std::uint64_t batch) {
          opening_ = batch;
          return batches_[batch];
        }};
  }

  void open(std::size_t slot, std::span<const std::uint64_t> indices) override {
    if (on_open) on_open(opening_);
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(slots_[slot].in_use);
    EXPECT_EQ(slot, opening_ % slots_.size());
    slots_[slot] = {.batch = opening_, .in_use = true, .values = std::vector<std::uint64_t>(indices.size())};
    opened.push_back(opening_);
  }
  void fill(std::size_t slot, std::uint64_t place, std::uint64_t index) override {
    if (on_fill) on_fill(slots_[slot].batch, place);
    slots_[slot].values[place] = index;
  }
  void close(std::size_t slot, std::span<const std::uint64_t> indices) override {
    EXPECT_EQ(std::vector(indices.begin(), indices.end()), batches_[slots_[slot].batch]);
    if (on_close) on_close(slots_[slot].batch);
    slots_[slot].closed = true;
  }

  std::vector<std::uint64_t> take(std::size_t slot) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(slots_[slot].closed);
    slots_[slot].in_use = false;
    return slots_[slot].values;
  }

  std::function<void(std::uint64_t)> on_open;
  std::function<void(std::uint64_t, std::uint64_t)> on_fill;
  std::function<void(std::uint64_t)> on_close;
  std::vector<std::uint64_t> opened;

 private:
  struct Slot {
    std::uint64_t batch = 0;
    bool in_use = false;
    bool closed = false;
    std::vector<std::uint64_t> values = {};
  };
  const Batches batches_;
  std::uint64_t opening_ = 0;
  std::mutex mutex_;
  std::vector<Slot> slots_;
};

Batches take_all(BatchEngine& engine, Numbers& work) {
  Batches result;
  while (const auto slot = engine.next()) {
    result.push_back(work.take(*slot));
    engine.give_back();
  }
  return result;
}

TEST(BatchEngine, HandsOutBatchesInOrderWhateverTheWorkersAndSlots) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t batch = 0; batch < 100; ++batch) sizes.push_back(batch % 7);  // empty ones, too
  for (const int workers : {0, 1, 2, 5}) {
    for (const std::size_t slots : {1, 2, 3, 8}) {
      Numbers work(sizes, slots);
      BatchEngine engine(work, work.options(workers));
      EXPECT_EQ(take_all(engine, work), indices_of(sizes)) << workers << " workers, " << slots << " slots";
      EXPECT_EQ(engine.next(), std::nullopt);
    }
  }
}

TEST(BatchEngine, HandsOutNothingIfThePreviousBatchWasNotGivenBack) {
  Numbers work({1, 1}, 2);
  BatchEngine engine(work, work.options(1));
  EXPECT_EQ(engine.next(), 0u);
  EXPECT_THROW(engine.next(), UsageError);
}

TEST(BatchEngine, GivingBackReturnsTheNumberOfSamples) {
  Numbers work({3, 0}, 2);
  BatchEngine engine(work, work.options(1));
  EXPECT_EQ(engine.next(), 0u);
  EXPECT_EQ(engine.give_back(), 3u);
  EXPECT_EQ(engine.give_back(), 0u);  // nothing is taken
  EXPECT_EQ(engine.next(), 1u);
  EXPECT_EQ(engine.give_back(), 0u);
}

TEST(BatchEngine, OfNoBatchesHandsOutNothing) {
  Numbers work({}, 2);
  BatchEngine engine(work, work.options(2));
  EXPECT_EQ(engine.next(), std::nullopt);
}

TEST(BatchEngine, WorkersShareABatch) {
  Numbers work({4}, 1);
  std::mutex mutex;
  std::condition_variable met;
  std::set<std::thread::id> threads;
  work.on_fill = [&](std::uint64_t, std::uint64_t) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    met.notify_all();
    // The first sample is not done before another thread has taken one.
    EXPECT_TRUE(met.wait_for(lock, std::chrono::seconds(30), [&] { return threads.size() > 1; }));
  };
  BatchEngine engine(work, work.options(2));
  EXPECT_EQ(take_all(engine, work), indices_of({4}));
  EXPECT_EQ(threads.size(), 2u);
}

TEST(BatchEngine, OpensNoMoreBatchesThanThereAreSlots) {
  const std::vector<std::uint64_t> sizes(20, 3);
  Numbers work(sizes, 3);
  std::atomic<std::uint64_t> given_back = 0;
  std::atomic<int> too_early = 0;
  work.on_open = [&](std::uint64_t batch) {
    if (batch >= given_back + 3) ++too_early;
  };
  BatchEngine engine(work, work.options(4));
  while (const auto slot = engine.next()) {
    work.take(*slot);
    ++given_back;
    engine.give_back();
  }
  EXPECT_EQ(given_back, 20u);
  EXPECT_EQ(too_early, 0);
  std::vector<std::uint64_t> in_order(20);
  for (std::uint64_t i = 0; i < 20; ++i) in_order[i] = i;
  EXPECT_EQ(work.opened, in_order);
}

std::string error_of(BatchEngine& engine, Numbers& work, int& batches) {
  try {
    while (const auto slot = engine.next()) {
      work.take(*slot);
      engine.give_back();
      ++batches;
    }
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BatchEngine, OfSeveralErrorsTheFirstSampleOfTheFirstBatchCounts) {
  for (const int workers : {0, 1, 4}) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      Numbers work(std::vector<std::uint64_t>(10, 16), 3);
      work.on_fill = [](std::uint64_t batch, std::uint64_t sample) {
        if (batch >= 6 && sample % 2 == 1)
          throw std::runtime_error(std::to_string(batch) + "/" + std::to_string(sample));
      };
      BatchEngine engine(work, work.options(workers));
      int batches = 0;
      EXPECT_EQ(error_of(engine, work, batches), "6/1") << workers << " workers";
      EXPECT_EQ(batches, 6);
      EXPECT_EQ(error_of(engine, work, batches), "6/1") << workers << " workers";
      // With several workers, one may open the next batch before another one fails.
      if (workers < 2) {
        EXPECT_EQ(work.opened.size(), 7u);
      }
    }
  }
}

TEST(BatchEngine, ErrorsInOpeningAndClosingArriveAtTheirBatch) {
  for (const int workers : {0, 1, 4}) {
    Numbers opening(std::vector<std::uint64_t>(10, 4), 3);
    opening.on_open = [](std::uint64_t batch) {
      if (batch == 5) throw std::runtime_error("open");
    };
    BatchEngine first(opening, opening.options(workers));
    int batches = 0;
    EXPECT_EQ(error_of(first, opening, batches), "open");
    EXPECT_EQ(batches, 5);
    EXPECT_EQ(opening.opened.size(), 5u);

    Numbers closing(std::vector<std::uint64_t>(10, 4), 3);
    closing.on_close = [](std::uint64_t batch) {
      if (batch == 7) throw std::runtime_error("close");
    };
    BatchEngine second(closing, closing.options(workers));
    batches = 0;
    EXPECT_EQ(error_of(second, closing, batches), "close");
    EXPECT_EQ(batches, 7);
    if (workers < 2) {
      EXPECT_EQ(closing.opened.size(), 8u);
    }
  }
}

TEST(BatchEngine, AnErrorInOpeningALaterBatchChangesNothing) {
  Numbers work(std::vector<std::uint64_t>(4, 1), 4);
  std::atomic<bool> first_failed = false;
  work.on_fill = [](std::uint64_t batch, std::uint64_t) {
    if (batch == 0) throw std::runtime_error("fill");
  };
  work.on_close = [](std::uint64_t) {};
  work.on_open = [&](std::uint64_t batch) {
    if (batch == 0) return;
    first_failed.wait(false);
    throw std::runtime_error("open");
  };
  BatchEngine engine(work, work.options(2));
  std::thread release([&] {
    while (!engine.is_stopping()) std::this_thread::yield();
    first_failed = true;
    first_failed.notify_all();
  });
  EXPECT_THROW(engine.next(), std::runtime_error);
  release.join();
  EXPECT_THROW(engine.next(), std::runtime_error);
}

TEST(BatchEngine, StopsAfterTheSamplesThatAreBeingFilled) {
  Numbers work(std::vector<std::uint64_t>(3, 1000), 3);
  std::mutex mutex;
  std::condition_variable changed;
  int filling = 0;
  bool may_go_on = false;
  std::atomic<int> filled = 0;
  work.on_fill = [&](std::uint64_t, std::uint64_t) {
    std::unique_lock lock(mutex);
    ++filling;
    changed.notify_all();
    changed.wait(lock, [&] { return may_go_on; });
    ++filled;
  };
  auto engine = std::make_unique<BatchEngine>(work, work.options(2));
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return filling == 2; });
  }
  const BatchEngine& stopping = *engine;  // until its workers go on
  std::thread destroyer([&] { engine.reset(); });
  while (!stopping.is_stopping()) std::this_thread::yield();
  {
    const std::lock_guard lock(mutex);
    may_go_on = true;
  }
  changed.notify_all();
  destroyer.join();
  EXPECT_EQ(filled, 2);
}

TEST(BatchEngine, WaitsOfItsWorkersHearTheStop) {
  Numbers work({1}, 1);
  std::atomic<int> waiting = 0;
  std::atomic<bool> closed = false;
  work.on_close = [&](std::uint64_t) { closed = true; };
  work.on_fill = [&](std::uint64_t, std::uint64_t) {
    ++waiting;
    waiting.notify_all();
    while (!StopScope::of_this_thread().stop_requested()) std::this_thread::yield();
  };
  {
    BatchEngine engine(work, work.options(1));
    waiting.wait(0);
  }
  EXPECT_EQ(waiting, 1);
  EXPECT_FALSE(closed);  // the engine is stopping
  EXPECT_FALSE(StopScope::of_this_thread().stop_possible());
}

std::size_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(tasks, std::filesystem::directory_iterator{}));
}

TEST(BatchEngine, LeavesNoThreadBehind) {
  const std::size_t before = threads_of_process();
  for (int epoch = 0; epoch < 20; ++epoch) {
    Numbers work(std::vector<std::uint64_t>(5, 10), 2);
    BatchEngine engine(work, work.options(4));
    if (epoch % 3 == 0) continue;  // not a batch is taken
    const auto slot = engine.next();
    ASSERT_TRUE(slot);
    work.take(*slot);
    engine.give_back();
    if (epoch % 3 == 1) take_all(engine, work);
  }
  // The kernel may list a thread for a moment after it was joined.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (threads_of_process() != before && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(threads_of_process(), before);
}

TEST(BatchEngine, CountsWhatItsWorkersDo) {
  Numbers work({8, 8}, 1);
  work.on_fill = [](std::uint64_t, std::uint64_t sample) {
    count_bytes_read(10);
    if (sample == 0) count_cache_hit();
    if (sample > 4) count_cache_miss();
    const StageScope decoding(LoaderStage::decode);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  };
  for (const int workers : {0, 2}) {
    BatchEngine engine(work, work.options(workers));
    take_all(engine, work);
    const auto statistics = engine.statistics();
    EXPECT_EQ(statistics.batches, 2u);
    EXPECT_EQ(statistics.samples, 16u);
    EXPECT_EQ(statistics.workers, workers);
    EXPECT_EQ(statistics.read.bytes, 160u);
    EXPECT_EQ(statistics.read.cache_hits, 2u);
    EXPECT_EQ(statistics.read.cache_misses, 6u);
    EXPECT_EQ(statistics.worker_seconds_waiting > 0, workers > 0);
    EXPECT_GE(statistics.stage_seconds[static_cast<std::size_t>(LoaderStage::decode)], 0.032);
    EXPECT_GE(statistics.seconds, statistics.seconds_waiting);
    EXPECT_GT(statistics.seconds_waiting, 0.0);
  }
}

}  // namespace
}  // namespace libtrain::data::detail
