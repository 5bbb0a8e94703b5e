#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <libtrain/data/batch.hpp>
#include <libtrain/data/dataset.hpp>
#include <libtrain/data/loader/batch_mixing.hpp>
#include <libtrain/data/loader/image_batches.hpp>
#include <libtrain/data/loader/loader_core.hpp>
#include <libtrain/data/loader/typed_batches.hpp>
#include <libtrain/data/loader_state.hpp>
#include <libtrain/data/normalize_on_device.hpp>
#include <libtrain/data/rank_shard.hpp>
#include <libtrain/data/sampler.hpp>
#include <libtrain/data/shard.hpp>

namespace libtrain::data {

template <typename B>
class DataLoaderOf;

/// One pass over the batches of an epoch, for a range-for loop or next(), by one thread. Its worker threads start with
/// it and stop when it is destroyed or assigned to, each after its current sample. It can be moved, which invalidates
/// its iterators; any call on a moved-from epoch throws UsageError.
template <typename B>
class LoaderEpochOf {
 public:
  class Iterator {
   public:
    explicit Iterator(LoaderEpochOf& epoch) : epoch_(&epoch) {}
    B& operator*() const { return *epoch_->current_; }
    B* operator->() const { return &*epoch_->current_; }
    Iterator& operator++() {
      epoch_->current_.reset();  // first, so that the next batch can reuse its memory
      epoch_->current_ = epoch_->next();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !epoch_->current_; }

   private:
    LoaderEpochOf* epoch_;
  };

  /// The next batch in the order of the steps, std::nullopt after the last one. Throws what reading it threw.
  std::optional<B> next() {
    detail::EpochCore& core = this->core();
    const auto slot = core.next();
    if (!slot) return std::nullopt;
    std::optional<B> batch = maker_->take(*slot);
    core.give_back();
    return batch;
  }

  /// Reads the first batch.
  Iterator begin() { return ++Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

  /// The number of samples in the batch that was taken last, for GradientSynchronizer::set_samples().
  std::uint64_t samples_of_batch() const { return core().samples_of_batch(); }

  /// The state of the run once all ranks have used the batches that were taken so far; batches that were only read
  /// ahead do not count. Pass it to the loader's resume() to continue from there.
  LoaderState state() const { return core().state(); }

 private:
  friend class DataLoaderOf<B>;

  LoaderEpochOf(detail::LoaderCore& loader, std::unique_ptr<detail::BatchMakerOf<B>> maker, std::uint64_t epoch,
                std::uint64_t position)
      : maker_(maker.get()), core_(std::make_unique<detail::EpochCore>(loader, std::move(maker), epoch, position)) {}

  detail::EpochCore& core() const {
    if (core_) return *core_;
    throw UsageError("This LoaderEpoch has been moved from. Use the object that it was moved to.");
  }

  std::optional<B> current_;
  detail::BatchMakerOf<B>* maker_;  // the core's
  std::unique_ptr<detail::EpochCore> core_;
};

/// Batches of type B of a data set for one rank, in an order that is a pure function of (seed, epoch, step, shard): a
/// batch does not depend on the number of workers or their speed.
///
///     DataLoaderOf loader(texts, pad, {.batch_size = 32}, context.shard());
///     for (auto& batch : loader.epoch(epoch)) ...
///
/// The workers of a loader read the samples of one batch together; the worker that reads the last sample calls
/// `collate`. Every rank gets the same number of batches, except with Remainder::uneven; with Remainder::exact the last
/// batch may have no samples, so that ranks stay in step. An exception of the data set or of `collate` is thrown in the
/// loop at the position of its batch and ends the epoch, unless the bad sample is replaced: see BadSampleOptions.
///
/// If the shard's device is a GPU, the tensors of a batch (visit_tensors()) are copied to it as soon as the batch is
/// made, on a separate stream.
///
/// When the first epoch starts, ranks whose shard is Context::shard() compare their data; if it differs, all throw
/// UsageError. Therefore each rank must create its loaders and start their epochs in the same order.
template <typename B>
class DataLoaderOf {
 public:
  /// `collate` makes a batch of the samples, in their order: B(std::vector<S>), or B(std::vector<S>, SampleRandom&)
  /// with random numbers that belong to the batch. Several workers call it at once. The data set must outlive the
  /// loader. Throws UsageError as Sampler does, and for options out of range.
  template <typename S, typename Collate>
  DataLoaderOf(const DatasetOf<S>& dataset, Collate collate, const LoaderOptions& options, const RankShard& shard)
      : core_(dataset, options, detail::require_copyable<B>(shard)),
        make_([this, &dataset, collate = std::move(collate)](std::uint64_t epoch) {
          return std::make_unique<detail::CollatedBatches<S, B, Collate>>(dataset, collate, core_, epoch);
        }) {}

  template <typename S, typename Collate>
  explicit DataLoaderOf(const DatasetOf<S>& dataset, Collate collate, const LoaderOptions& options = {},
                        Shard shard = {})
      : DataLoaderOf(dataset, std::move(collate), options, RankShard(shard, c10::kCPU, {})) {}

  template <typename S, typename Collate>
  DataLoaderOf(const DatasetOf<S>&& dataset, Collate collate, const LoaderOptions& options,
               const RankShard& shard) = delete;  // would dangle
  template <typename S, typename Collate>
  DataLoaderOf(const DatasetOf<S>&& dataset, Collate collate, const LoaderOptions& options = {},
               Shard shard = {}) = delete;
  DataLoaderOf(const DataLoaderOf&) = delete;  // its epochs refer to it
  DataLoaderOf& operator=(const DataLoaderOf&) = delete;

  /// The batches of `epoch` from step `first_step` on. One epoch at a time; it must not outlive the loader. Throws
  /// UsageError for a step past the end, and if ranks have different data.
  LoaderEpochOf<B> epoch(std::uint64_t epoch, std::uint64_t first_step = 0) & {
    return {core_, make_(epoch), epoch, core_.position_of_step(epoch, first_step)};
  }

  /// The rest of the epoch in which LoaderEpochOf::state() was called. World size and batch size may differ from those
  /// of the previous run; no sample is repeated or skipped. Throws UsageError if the state was saved for another data
  /// set (see IndexedDataset::identity()), order or seed.
  ///
  /// With W ranks, rank r continues the bad sample counts of ranks r, r + W, ... of the state; if the state has V < W
  /// ranks, it continues the count of rank r % V. Throws EnvironmentError if that is more than BadSampleOptions allows.
  LoaderEpochOf<B> resume(const LoaderState& state) & {
    core_.resume(state);
    return {core_, make_(state.epoch), state.epoch, state.position};
  }

  /// Of epoch 0 with LoaderOptions::max_tokens, with which epochs differ: see Sampler::batches().
  std::uint64_t batches_per_epoch() const { return sampler().batches(); }
  const Sampler& sampler() const { return core_.sampler(); }

  /// Over all epochs, including the current one. Any thread may call it.
  LoaderStatistics statistics() const { return core_.statistics(); }

  /// Seconds that the loop has waited for batches, over all epochs. Any thread may call it.
  double seconds_waiting() const { return statistics().seconds_waiting; }

 protected:
  using MakeBatches = std::function<std::unique_ptr<detail::BatchMakerOf<B>>(const detail::LoaderCore&, std::uint64_t)>;

  DataLoaderOf(const IndexedDataset& dataset, const LoaderOptions& options, const RankShard& shard, MakeBatches make)
      : core_(dataset, options, detail::require_copyable<B>(shard)),
        make_([this, make = std::move(make)](std::uint64_t epoch) { return make(core_, epoch); }) {}

 private:
  detail::LoaderCore core_;
  std::function<std::unique_ptr<detail::BatchMakerOf<B>>(std::uint64_t epoch)> make_;
};

template <typename S, typename Collate>
DataLoaderOf(const DatasetOf<S>&, Collate, const LoaderOptions&, const RankShard&)
    -> DataLoaderOf<detail::CollatedBy<S, Collate>>;
template <typename S, typename Collate>
DataLoaderOf(const DatasetOf<S>&, Collate, const LoaderOptions& = {}, Shard = {})
    -> DataLoaderOf<detail::CollatedBy<S, Collate>>;

struct DataLoaderOptions {
  // See LoaderOptions:
  std::uint64_t batch_size = 32;
  int workers = 2;
  std::optional<std::uint64_t> seed = std::nullopt;
  Order order = Order::shuffled;
  Remainder remainder = Remainder::pad;
  int prefetch = 3;
  Transform transform = {};  ///< applied to each sample
  /// Number of classes of the model: a label that is not in [0, classes) is a UsageError that names sample and file.
  /// Without it labels are not checked, unless `mixing` gives the number.
  std::optional<std::int64_t> classes = std::nullopt;
  std::optional<BatchMixing> mixing = std::nullopt;
  /// The data set's images are uint8, cross to the shard's device as bytes, and are normalised there, on the stream of
  /// the copy; mixing follows. See NormalizeOnDevice. A transform and ImagePipelineOptions::uint8_step see bytes.
  std::optional<DeviceNormalization> normalize_on_device = std::nullopt;
  BadSampleOptions bad_samples = {};
  std::uint64_t blocks_at_once = 16;
  std::uint64_t repetitions = 1;
};

/// Batches of labelled images of one shape. Their memory is reused for later batches, and pinned if the shard's device
/// is a GPU. A batch without samples still has its trailing shape.
class DataLoader : public DataLoaderOf<Batch> {
 public:
  /// The data set must outlive the loader; workers call its functions. Throws UsageError as DataLoaderOf does, and for
  /// a data set with more than `classes` classes. With normalize_on_device it throws as NormalizeOnDevice does, and for
  /// images that are not bytes (if the data set is no InPlaceDataset, the first batch does).
  DataLoader(const Dataset& dataset, const DataLoaderOptions& options, const RankShard& shard);
  explicit DataLoader(const Dataset& dataset, const DataLoaderOptions& options = {}, Shard shard = {});

  DataLoader(const Dataset&& dataset, const DataLoaderOptions& options,
             const RankShard& shard) = delete;  // would dangle
  DataLoader(const Dataset&& dataset, const DataLoaderOptions& options = {}, Shard shard = {}) = delete;
};

using LoaderEpoch = LoaderEpochOf<Batch>;

}  // namespace libtrain::data
