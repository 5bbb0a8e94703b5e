#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include <libtrain/data/loader/loader_statistics.hpp>
#include <libtrain/data/stage_clock.hpp>

namespace libtrain::data::detail {

/// What a BatchEngine has its workers do. Batches are numbered from 0, a slot is where one is made. For each batch:
/// open() once, fill() once for each sample, by any workers and in any order, then close() once.
class BatchWork {
 public:
  virtual ~BatchWork() = default;

  /// Makes ready what batch number `batch` needs, and returns how many samples it has. One batch at a time, in order.
  virtual std::uint64_t open(std::uint64_t batch, std::size_t slot) = 0;

  /// Puts sample number `sample` of the batch into its place. Called from several threads at once.
  virtual void fill(std::uint64_t batch, std::size_t slot, std::uint64_t sample) = 0;

  /// After the last sample, by the worker that was last.
  virtual void close(std::uint64_t batch, std::size_t slot) = 0;
};

struct BatchEngineOptions {
  std::uint64_t batches = 0;
  int workers = 1;        ///< threads; 0: the consumer does the work itself, in next()
  std::size_t slots = 1;  ///< batches that are made or wait to be taken, at least 1
  /// Called first in every worker thread.
  void (*prepare_thread)() = nullptr;
};

/// Has threads make batches, sample by sample, and hands them out in order.
///
/// A slot is free, open (samples are left to claim), filling (all claimed), ready, or taken; batch b lies in slot
/// b % slots. Invariants: at most one batch is open; batches are opened in order, and not before the batch that was in
/// their slot has been given back; so at most `slots` batches exist beside what the consumer keeps for itself. Workers
/// claim a few samples at a time, so that the threads of a loader work on the same batch.
///
/// What the work throws belongs to its batch, and of several samples to the first one; it is thrown by next() when that
/// batch's turn comes and whenever a batch is asked for afterwards.
class BatchEngine {
 public:
  /// `work` must outlive the engine. Throws what std::thread does; UsageError for options out of range.
  BatchEngine(BatchWork& work, const BatchEngineOptions& options);
  BatchEngine(const BatchEngine&) = delete;  // threads wait on this very object
  BatchEngine& operator=(const BatchEngine&) = delete;

  /// Returns once every worker has ended the sample that it is at.
  ~BatchEngine();

  /// Waits for the next batch and returns its slot, which is the caller's until give_back(); nothing after the last
  /// one. One thread at a time. Throws UsageError unless the slot taken last was given back.
  std::optional<std::size_t> next();
  void give_back();

  /// Asked for between samples by workers whose batch nobody will take.
  bool is_stopping() const { return stop_.stop_requested(); }

  /// Of this engine so far. Any thread may ask.
  LoaderStatistics statistics() const;

 private:
  struct Slot {
    std::uint64_t batch = 0;
    std::uint64_t samples = 0;
    std::uint64_t unfinished = 0;  // samples that are not filled yet
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
  struct WorkerTimes {
    std::array<double, kLoaderStages> stages = {};
    double waiting = 0;
    ReadCounts read = {};
  };

  void work(std::size_t worker);
  void run_here();
  bool has_room() const;
  bool has_samples() const;
  bool is_exhausted() const;
  Claim claim();
  void open_batch(std::unique_lock<std::mutex>& lock);
  void fill_claim(const Claim& claim, std::unique_lock<std::mutex>& lock);
  std::optional<Failure> fill_samples(const Claim& claim, std::uint64_t batch);
  void close_batch(std::size_t slot, std::unique_lock<std::mutex>& lock);
  void note(const StageClock& clock, std::size_t worker, double waiting);
  void stop();

  BatchWork& work_;
  const BatchEngineOptions options_;
  std::vector<Slot> slots_;
  std::uint64_t last_;             // no batch from here on is opened
  std::uint64_t opened_ = 0;       // the next batch to be opened
  std::uint64_t given_back_ = 0;   // batches that the consumer has done with
  std::uint64_t next_sample_ = 0;  // of the open batch, the next one to be claimed
  std::uint64_t open_samples_ = 0;
  bool is_opening_ = false;
  bool is_taken_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for workers: there is something to claim or to open, or nothing any more
  std::condition_variable ready_;    // for the consumer
  std::stop_source stop_;
  std::vector<WorkerTimes> times_;
  LoaderStatistics totals_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<std::thread> workers_;
};

}  // namespace libtrain::data::detail
