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

/// Options of loaders of any batch type.
struct LoaderOptions {
  std::uint64_t batch_size = 32;  ///< samples per rank and step; does not count with `max_tokens`
  /// Batches by tokens, see Sampler: about so many tokens per rank and step, of texts with these `lengths`
  /// (TokenizedTexts::lengths()), instead of batch_size texts.
  std::uint64_t max_tokens = 0;
  std::vector<std::uint32_t> lengths = {};
  TokenCount token_count = TokenCount::packed;  ///< TokenCount::padded for pad_tokens()
  int workers = 2;                              ///< threads that read; 0 reads in the thread that takes the batch
  /// Seed of the order and of the samples' random numbers, the same on every rank; by default the shard's.
  std::optional<std::uint64_t> seed = std::nullopt;
  Order order = Order::shuffled;
  Remainder remainder = Remainder::pad;
  int prefetch = 3;  ///< batches that are ready or being made, not counting the loop's
  BadSampleOptions bad_samples = {};
  std::uint64_t blocks_at_once = 16;  ///< for Order::blocks: number of files whose samples are mixed
  std::uint64_t repetitions = 1;      ///< see SamplerOptions; each has random numbers of its own
  /// See SamplerOptions: CocoDetection::aspect_ratio_groups() and length_groups() have those of images and texts that
  /// are padded to the same size.
  std::vector<std::uint8_t> groups = {};
  std::uint64_t group_chunk = 64;
};

namespace detail {

/// The part of a loader that does not depend on the type of its batches.
class LoaderCore {
 public:
  /// The data set must outlive it. Throws as DataLoaderOf's constructor.
  LoaderCore(const IndexedDataset& dataset, const LoaderOptions& options, const RankShard& shard);

  /// The position in the order of `epoch` at which a step starts. Throws UsageError for a step past the end.
  std::uint64_t position_of_step(std::uint64_t epoch, std::uint64_t step) const;

  /// Adds the state's bad samples. Throws as DataLoaderOf::resume().
  void resume(const LoaderState& state);

  LoaderState state_at(std::uint64_t epoch, std::uint64_t position) const;

  /// Returns read(index, random) or, if that sample is bad and bad samples are allowed, read() of a replacement.
  /// `number` is that of Sampler::batch(), whose repetitions have random numbers of their own. Throws
  /// EnvironmentError for too many bad samples, and what `read` throws that is not about a sample. Any thread may call
  /// it.
  template <typename Read>
  auto read_or_replace(std::uint64_t epoch, std::uint64_t number, const Read& read) const {
    std::uint64_t actual = number % dataset_.size();
    for (std::uint64_t attempt = 0;; ++attempt) {
      // Those of the replaced sample, so that the replacement does not look the same twice in an epoch.
      SampleRandom random(seed_, epoch, number);
      try {
        return read(actual, random);
      } catch (const StorageUnavailable&) {
        throw;  // not a fault of the sample
      } catch (const EnvironmentError& error) {
        const auto next = replace(epoch, actual, attempt, error);
        if (!next) throw;
        actual = *next;
      }
    }
  }

  /// The random numbers of a batch of these samples, which differ from those of its samples.
  SampleRandom batch_random(std::uint64_t epoch, std::span<const std::uint64_t> indices) const;

  /// Over all epochs, including the current one. Any thread may call it.
  LoaderStatistics statistics() const;

  const Sampler& sampler() const { return sampler_; }
  std::size_t slots() const { return slots_; }

  /// Null if batches stay on the host.
  const DeviceCopy* device() const { return device_.get(); }

 private:
  friend class EpochCore;

  struct Content {  // of IndexedDataset::identity()
    std::uint64_t digest = 0;
    std::string summary = {};
  };

  std::optional<std::uint64_t> replace(std::uint64_t epoch, std::uint64_t bad, std::uint64_t attempt,
                                       const EnvironmentError& error) const;
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
  mutable std::optional<Content> content_;  // computed on demand, by the thread that runs the loop
  bool is_compared_ = false;                // with the data of the other ranks
  mutable std::mutex mutex_;
  LoaderStatistics finished_epochs_;
  const BatchEngine* running_ = nullptr;
};

/// One pass over the batches of an epoch from a position on: the part that does not depend on their type.
class EpochCore {
 public:
  /// The loader must outlive it.
  EpochCore(LoaderCore& loader, std::unique_ptr<BatchMaker> maker, std::uint64_t epoch, std::uint64_t position);
  EpochCore(const EpochCore&) = delete;  // its threads refer to it
  EpochCore& operator=(const EpochCore&) = delete;
  ~EpochCore();

  /// Waits for the next batch and returns its slot in the maker, valid until give_back(); std::nullopt after the last
  /// batch. Throws what the maker threw.
  std::optional<std::size_t> next();

  /// Called once the loop has taken the batch out of its slot.
  void give_back();

  LoaderState state() const;

  /// Samples in the batch that was given back last.
  std::uint64_t samples_of_batch() const { return samples_of_batch_; }

 private:
  std::vector<std::uint64_t> indices_of(std::uint64_t batch) const;
  std::vector<std::uint64_t> all_indices() const;

  LoaderCore& loader_;
  const std::unique_ptr<BatchMaker> maker_;
  const std::uint64_t epoch_;
  const std::uint64_t start_;  // a position in the epoch's order
  const EpochOrder order_;
  std::uint64_t taken_ = 0;
  std::uint64_t samples_taken_ = 0;
  std::uint64_t samples_of_batch_ = 0;
  bool has_ended_ = false;
  // Created after the engine and destroyed after it: a worker that waits for a file that is being fetched must be
  // stopped first, or it would start to fetch the file itself.
  std::unique_ptr<ReadAhead> read_ahead_;
  BatchEngine engine_;
};

}  // namespace detail

}  // namespace libtrain::data
