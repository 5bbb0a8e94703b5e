#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/indexed_dataset.hpp>
#include <libtrain/data/loader/bad_samples.hpp>
#include <libtrain/data/loader/batch_engine.hpp>
#include <libtrain/data/loader/device_copy.hpp>
#include <libtrain/data/loader/loader_statistics.hpp>
#include <libtrain/data/loader_state.hpp>
#include <libtrain/data/rank_shard.hpp>
#include <libtrain/data/sampler.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

/// What the loaders of all types of batches have in common.
struct LoaderOptions {
  std::uint64_t batch_size = 32;  ///< samples per rank and step
  int workers = 2;                ///< threads that read; 0 reads in the thread that asks for the batch
  /// Of the order and of the random numbers of samples, the same on every rank; without one, the shard's.
  std::optional<std::uint64_t> seed = std::nullopt;
  Order order = Order::shuffled;
  Remainder remainder = Remainder::pad;
  int prefetch = 3;  ///< batches ready or being made, beside the one that the loop has
  BadSampleOptions bad_samples = {};
  std::uint64_t blocks_at_once = 16;  ///< of Order::blocks: files whose samples are mixed
};

namespace detail {

/// Makes the batches of one epoch, sample by sample, each in a slot, of which several are in use at once. For each
/// batch: open() once, fill() once for each sample, by any threads and in any order, then close() once.
class BatchMaker {
 public:
  virtual ~BatchMaker() = default;

  /// Begins a batch of the samples with these numbers. One batch at a time, in order.
  virtual void open(std::size_t slot, std::span<const std::uint64_t> indices) = 0;

  /// Puts the sample number `index` into its place in the batch.
  virtual void fill(std::size_t slot, std::uint64_t place, std::uint64_t index) = 0;

  /// After the last sample, by the thread that was last. `random` belongs to the batch.
  virtual void close(std::size_t slot, SampleRandom& random) = 0;
};

/// Everything about a loader but the type of its batches.
class LoaderCore {
 public:
  /// The data set must outlive it. Throws as DataLoaderOf's constructor.
  LoaderCore(const IndexedDataset& dataset, const LoaderOptions& options, const RankShard& shard);

  /// The position in an epoch's order at which a step begins. Throws UsageError for a step past the end.
  std::uint64_t position_of_step(std::uint64_t step) const;

  /// Counts the state's bad samples. Throws as DataLoaderOf::resume().
  void resume(const LoaderState& state);

  LoaderState state_at(std::uint64_t epoch, std::uint64_t position) const;

  /// What `read(index, random)` returns for the sample number `index` or, where that one is bad and bad samples are
  /// allowed, for another one in its place. Throws EnvironmentError for too many bad samples, and whatever `read`
  /// throws that is not about a sample. Any thread may call it.
  template <typename Read>
  auto read_or_replace(std::uint64_t epoch, std::uint64_t index, const Read& read) const {
    std::uint64_t actual = index;
    for (std::uint64_t attempt = 0;; ++attempt) {
      // Those of the sample that is replaced, so that the other one does not look twice the same in an epoch.
      SampleRandom random(seed_, epoch, index);
      try {
        return read(actual, random);
      } catch (const StorageUnavailable&) {
        throw;  // the sample is as good as any
      } catch (const EnvironmentError& error) {
        const auto next = replace(epoch, index, actual, attempt, error);
        if (!next) throw;
        actual = *next;
      }
    }
  }

  /// Over all epochs, the one that runs included. Any thread may ask.
  LoaderStatistics statistics() const;

  const Sampler& sampler() const { return sampler_; }
  std::size_t slots() const { return slots_; }

  /// Null: batches stay on the host.
  const DeviceCopy* device() const { return device_.get(); }

 private:
  friend class EpochCore;

  struct Content {  // of IndexedDataset::identity()
    std::uint64_t digest = 0;
    std::string summary = {};
  };

  std::optional<std::uint64_t> replace(std::uint64_t epoch, std::uint64_t index, std::uint64_t bad,
                                       std::uint64_t attempt, const EnvironmentError& error) const;
  void require_same_data();
  void note_identity(const DatasetIdentity& identity) const;
  const Content& content() const;

  const IndexedDataset& dataset_;
  const RankShard shard_;
  const int workers_;
  const std::size_t slots_;
  const std::uint64_t seed_;
  const Sampler sampler_;
  mutable BadSamples bad_samples_;
  const std::unique_ptr<const DeviceCopy> device_;
  mutable std::optional<Content> content_;  // once it was asked for, by the thread that runs the loop
  bool is_compared_ = false;                // with the data of the other ranks
  mutable std::mutex mutex_;
  LoaderStatistics finished_epochs_;
  const BatchEngine* running_ = nullptr;
};

/// One pass over the batches of an epoch from a position on, whatever their type. Threads refer to it: it stays where
/// it is.
class EpochCore : private BatchWork {
 public:
  /// The loader must outlive it.
  EpochCore(LoaderCore& loader, std::unique_ptr<BatchMaker> maker, std::uint64_t epoch, std::uint64_t position);
  EpochCore(const EpochCore&) = delete;
  EpochCore& operator=(const EpochCore&) = delete;
  ~EpochCore() override;

  /// Waits for the next batch, and returns the slot in which the maker has it, until give_back(); nothing after the
  /// last one. Throws what making it threw.
  std::optional<std::size_t> next();

  /// The loop has taken the batch out of its slot.
  void give_back();

  LoaderState state() const;

  /// Of the batch that was given back last.
  std::uint64_t samples_of_batch() const { return samples_of_batch_; }

 private:
  std::uint64_t open(std::uint64_t batch, std::size_t slot) override;
  void fill(std::uint64_t batch, std::size_t slot, std::uint64_t place) override;
  void close(std::uint64_t batch, std::size_t slot) override;
  std::vector<std::uint64_t> indices() const;

  LoaderCore& loader_;
  const std::unique_ptr<BatchMaker> maker_;
  const std::uint64_t epoch_;
  const std::uint64_t start_;  // a position in its order
  const EpochOrder order_;
  std::vector<std::vector<std::uint64_t>> indices_of_slots_;
  std::uint64_t taken_ = 0;
  std::uint64_t samples_taken_ = 0;
  std::uint64_t samples_of_batch_ = 0;
  bool has_ended_ = false;
  // Begins after the engine and goes after it: a worker that waits for what is being fetched for it is told to stop
  // first, or it would begin to fetch that itself.
  std::unique_ptr<ReadAhead> read_ahead_;
  BatchEngine engine_;
};

}  // namespace detail

}  // namespace libtrain::data
