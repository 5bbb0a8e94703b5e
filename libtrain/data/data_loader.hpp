#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include <libtrain/data/batch_reader.hpp>
#include <libtrain/data/dataset.hpp>
#include <libtrain/data/loader_epoch.hpp>
#include <libtrain/data/sampler.hpp>
#include <libtrain/data/shard.hpp>

namespace libtrain::data {

struct DataLoaderOptions {
  std::uint64_t batch_size = 32;  ///< samples per rank and step
  int workers = 2;                ///< threads that read; 0 reads in the thread that asks for the batch
  /// Of the order and of the transform's random numbers, the same on every rank; without one, the shard's.
  std::optional<std::uint64_t> seed = std::nullopt;
  Order order = Order::shuffled;
  Remainder remainder = Remainder::pad;
  int prefetch = 2;  ///< batches kept ready or being read, per worker
  Transform transform = {};
};

/// Batches of a data set for one rank, in an order that is a pure function of (seed, epoch, step, shard): neither the
/// number of workers nor their speed changes a batch.
///
///     for (auto& batch : loader.epoch(epoch)) ...
///
/// Every rank gets the same number of batches; with Remainder::exact the last one may have size 0 (and still its
/// trailing shape), so that ranks stay in step. What the data set or the transform throws arrives in the loop at the
/// position of its batch and ends the epoch.
class DataLoader {
 public:
  /// The data set must outlive the loader; its get() is called from the workers. Throws UsageError as Sampler does, and
  /// for negative workers or a prefetch below 1.
  explicit DataLoader(const Dataset& dataset, DataLoaderOptions options = {}, Shard shard = {});

  DataLoader(const Dataset&& dataset, DataLoaderOptions options = {}, Shard shard = {}) = delete;  // would dangle
  DataLoader(const DataLoader&) = delete;  // epochs refer to their loader
  DataLoader& operator=(const DataLoader&) = delete;

  /// The batches of `epoch` from step `first_step` on, which lets a resumed run go on in the middle. Must not outlive
  /// the loader.
  LoaderEpoch epoch(std::uint64_t epoch, std::uint64_t first_step = 0) &;

  std::uint64_t batches_per_epoch() const { return sampler_.batches_per_epoch(); }
  const Sampler& sampler() const { return sampler_; }

  /// Time that consumers have spent waiting for batches, over all epochs. Any thread may ask.
  double seconds_waiting() const { return seconds_waiting_.load(); }

 private:
  int workers_;
  int prefetch_;
  Sampler sampler_;
  BatchReader reader_;
  std::atomic<double> seconds_waiting_ = 0;
};

}  // namespace libtrain::data
