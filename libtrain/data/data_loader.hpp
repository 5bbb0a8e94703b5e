#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include <libtrain/data/dataset.hpp>
#include <libtrain/data/loader/bad_samples.hpp>
#include <libtrain/data/loader/batch_memory.hpp>
#include <libtrain/data/loader/batch_mixing.hpp>
#include <libtrain/data/loader/device_copy.hpp>
#include <libtrain/data/loader/loader_statistics.hpp>
#include <libtrain/data/loader/sample_reader.hpp>
#include <libtrain/data/loader_epoch.hpp>
#include <libtrain/data/loader_state.hpp>
#include <libtrain/data/rank_shard.hpp>
#include <libtrain/data/sampler.hpp>
#include <libtrain/data/shard.hpp>

namespace libtrain::data {

namespace detail {
class BatchEngine;
}

struct DataLoaderOptions {
  std::uint64_t batch_size = 32;  ///< samples per rank and step
  int workers = 2;                ///< threads that read; 0 reads in the thread that asks for the batch
  /// Of the order and of the random numbers of samples, the same on every rank; without one, the shard's.
  std::optional<std::uint64_t> seed = std::nullopt;
  Order order = Order::shuffled;
  Remainder remainder = Remainder::pad;
  int prefetch = 3;  ///< batches ready or being made, beside the one that the loop has
  Transform transform = {};
  /// Of the model: a label that is not in [0, classes) is a UsageError that names sample and file. Without it labels
  /// are not checked, except where `mixing` has the number.
  std::optional<std::int64_t> classes = std::nullopt;
  std::optional<BatchMixing> mixing = std::nullopt;
  BadSampleOptions bad_samples = {};
  std::uint64_t blocks_at_once = 16;  ///< of Order::blocks: files whose samples are mixed
};

/// Batches of a data set for one rank, in an order that is a pure function of (seed, epoch, step, shard): neither the
/// number of workers nor their speed changes a batch.
///
///     for (auto& batch : loader.epoch(epoch)) ...
///
/// The workers of a loader read the samples of one batch together. Every rank gets the same number of batches, but with
/// Remainder::uneven; with Remainder::exact the last one may have size 0 (and still its trailing shape), so that ranks
/// stay in step. What the data set or the transform throws arrives in the loop at the position of its batch and ends
/// the epoch, unless the bad sample is replaced: see BadSampleOptions.
///
/// Where the shard asks for a GPU, batches are made in pinned memory and copied there as soon as they are made, on a
/// stream of their own.
class DataLoader {
 public:
  /// The data set must outlive the loader; its functions are called from the workers. Throws UsageError as Sampler
  /// does, for options out of range, and for a data set of more than `classes` classes.
  DataLoader(const Dataset& dataset, DataLoaderOptions options, const RankShard& shard);
  explicit DataLoader(const Dataset& dataset, DataLoaderOptions options = {}, Shard shard = {});

  DataLoader(const Dataset&& dataset, DataLoaderOptions options, const RankShard& shard) = delete;  // would dangle
  DataLoader(const Dataset&& dataset, DataLoaderOptions options = {}, Shard shard = {}) = delete;
  DataLoader(const DataLoader&) = delete;  // epochs refer to their loader
  DataLoader& operator=(const DataLoader&) = delete;

  /// The batches of `epoch` from step `first_step` on. One epoch at a time; it must not outlive the loader. Throws
  /// UsageError for a step past the end.
  LoaderEpoch epoch(std::uint64_t epoch, std::uint64_t first_step = 0) &;

  /// The rest of the epoch in which a run stopped, of which LoaderEpoch::state() told; world size and batch size may
  /// have changed, and no sample is repeated or left out. Throws UsageError where the state is that of another data set
  /// (see Dataset::identity()), order or seed. Of W ranks rank r goes on counting the bad samples that the ranks r, r +
  /// W, ... of the state have met, and where it has fewer ranks, V, those of rank r % V; EnvironmentError where these
  /// are more than BadSampleOptions allow.
  LoaderEpoch resume(const LoaderState& state) &;

  std::uint64_t batches_per_epoch() const { return sampler_.batches(); }
  const Sampler& sampler() const { return sampler_; }

  /// Over all epochs, the one that runs included. Any thread may ask.
  LoaderStatistics statistics() const;

  /// Time that the loop has spent waiting for batches, over all epochs. Any thread may ask.
  double seconds_waiting() const { return statistics().seconds_waiting; }

 private:
  friend class LoaderEpoch;

  struct Content {  // of Dataset::identity()
    std::uint64_t digest = 0;
    std::string summary = {};
  };

  LoaderEpoch epoch_from(std::uint64_t epoch, std::uint64_t position);
  const Content& content() const;
  LoaderState state_at(std::uint64_t epoch, std::uint64_t position) const;

  const Dataset& dataset_;
  const Shard shard_;
  const int workers_;
  const std::size_t slots_;
  const std::uint64_t seed_;
  const std::optional<BatchMixing> mixing_;
  Sampler sampler_;
  BadSamples bad_samples_;
  detail::SampleReader reader_;
  std::unique_ptr<const detail::DeviceCopy> device_;
  detail::BatchMemory memory_;
  mutable std::once_flag content_known_;
  mutable Content content_;
  mutable std::mutex mutex_;
  LoaderStatistics finished_epochs_;
  const detail::BatchEngine* running_ = nullptr;
};

}  // namespace libtrain::data
