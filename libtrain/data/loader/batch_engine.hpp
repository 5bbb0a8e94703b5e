#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/loader/loader_statistics.hpp>
#include <libtrain/data/stage_clock.hpp>

namespace libtrain::data::detail {

/// Makes batches for a BatchEngine, each in a slot; several slots are in use at once. `indices` are the numbers of the
/// batch's samples in the data set. For each batch: open() once, fill() once for each sample, by any threads and in any
/// order, then close() once.
class BatchMaker {
 public:
  virtual ~BatchMaker() = default;

  /// Begins a batch. One batch at a time, in order.
  virtual void open(std::size_t slot, std::span<const std::uint64_t> indices) = 0;

  /// Reads the sample `index` into position `place` of the batch.
  virtual void fill(std::size_t slot, std::uint64_t place, std::uint64_t index) = 0;

  /// Completes the batch, in the thread that filled the last sample.
  virtual void close(std::size_t slot, std::span<const std::uint64_t> indices) = 0;
};

struct BatchEngineOptions {
  std::uint64_t batches = 0;
  int workers = 1;        ///< threads, at least 0; 0: the consumer makes the batches itself, in next()
  std::size_t slots = 1;  ///< batches that are being made or are ready, at least 1
  /// Returns the samples of batch number `batch`, from 0 on. One batch at a time, in order.
  std::function<std::vector<std::uint64_t>(std::uint64_t batch)> indices = {};
  /// Called first in every worker thread.
  void (*prepare_thread)() = nullptr;
};

/// Runs threads that make batches, sample by sample, and hands the batches out in order.
///
/// A slot is free, open (it has unclaimed samples), filling (all samples are claimed), ready, or taken; batch b lies in
/// slot b % slots. Invariants: at most one batch is open; batches are opened in order, and a slot is reused only after
/// its previous batch has been given back; so at most `slots` batches exist beside those that the consumer keeps.
/// Workers claim a few samples at a time, so that all threads work on the same batch.
///
/// An exception of the maker belongs to its batch; of several in a batch, that of the first sample counts. next()
/// throws it at the turn of that batch, and again in every later call.
class BatchEngine {
 public:
  /// `maker` must outlive the engine. Throws what std::thread does.
  BatchEngine(BatchMaker& maker, const BatchEngineOptions& options);
  BatchEngine(const BatchEngine&) = delete;  // its threads refer to it
  BatchEngine& operator=(const BatchEngine&) = delete;

  /// Returns once every worker has finished its current sample.
  ~BatchEngine();

  /// Waits for the next batch and returns its slot, which is the caller's until give_back(); std::nullopt after the
  /// last batch. One thread at a time. Throws UsageError unless the previous slot was given back.
  std::optional<std::size_t> next();

  /// Returns the number of samples in the batch that was taken.
  std::uint64_t give_back();

  bool is_stopping() const { return stop_.stop_requested(); }

  /// Any thread may call it.
  LoaderStatistics statistics() const;

 private:
  struct Slot {
    std::vector<std::uint64_t> indices = {};  // not changed until the slot is given back: fill() reads them unlocked
    std::uint64_t unfinished = 0;             // samples that are not filled yet
    bool is_ready = false;
    std::uint64_t failed_sample = std::numeric_limits<std::uint64_t>::max();
    std::exception_ptr error = {};
  };
  struct Claim {
    std::size_t slot = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  struct Failure {
    std::uint64_t sample = 0;
    std::exception_ptr error = {};
  };

  void work(std::size_t worker);
  void run_here();
  bool has_room() const;
  bool has_samples() const;
  bool is_exhausted() const;
  Claim claim();
  void open_batch(std::unique_lock<std::mutex>& lock);
  void fill_claim(const Claim& claim, std::unique_lock<std::mutex>& lock);
  std::optional<Failure> fill_samples(const Claim& claim);
  void close_batch(std::size_t slot, std::unique_lock<std::mutex>& lock);
  void stop();

  BatchMaker& maker_;
  const BatchEngineOptions options_;
  std::vector<Slot> slots_;
  std::uint64_t last_;             // no batch from here on is opened
  std::uint64_t opened_ = 0;       // the next batch to open
  std::uint64_t given_back_ = 0;   // batches that the consumer has given back
  std::uint64_t next_sample_ = 0;  // the next sample of the open batch to claim
  std::uint64_t open_samples_ = 0;
  bool is_opening_ = false;
  bool is_taken_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for workers: there is something to claim or to open, or nothing any more
  std::condition_variable ready_;    // for the consumer
  std::stop_source stop_;
  std::vector<LoaderStatistics> by_worker_;  // only what a StageClock counts, and the seconds waited
  LoaderStatistics totals_;
  Stopwatch stopwatch_;
  std::vector<std::thread> workers_;
};

}  // namespace libtrain::data::detail
