#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>

#include <libtrain/data/batch.hpp>
#include <libtrain/data/loader/batch_engine.hpp>
#include <libtrain/data/loader/image_batches.hpp>
#include <libtrain/data/loader_state.hpp>
#include <libtrain/data/read_ahead.hpp>

namespace libtrain::data {

class DataLoader;

/// One pass over the batches of an epoch, for a range-for loop. It can be walked once, by one thread. Its worker
/// threads start with it and stop when it is destroyed, after the sample that each of them is reading.
class LoaderEpoch {
 public:
  class Iterator {
   public:
    explicit Iterator(LoaderEpoch& epoch) : epoch_(&epoch) {}
    Batch& operator*() const { return *epoch_->current_; }
    Batch* operator->() const { return &*epoch_->current_; }
    Iterator& operator++() {
      epoch_->advance();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !epoch_->current_; }

   private:
    LoaderEpoch* epoch_;
  };

  LoaderEpoch(const LoaderEpoch&) = delete;  // threads work for this very object
  LoaderEpoch& operator=(const LoaderEpoch&) = delete;
  ~LoaderEpoch();

  /// The next batch in the order of the steps, or nothing after the last one. Throws what reading it threw.
  std::optional<Batch> next();

  /// Reads the first batch.
  Iterator begin() { return ++Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

  /// Where the run stands once all ranks have used the batches that were taken so far: batches that were only read
  /// ahead do not count. DataLoader::resume() goes on from there.
  LoaderState state() const;

 private:
  friend class DataLoader;

  LoaderEpoch(DataLoader& loader, const detail::ImageBatchParts& parts, std::uint64_t epoch, std::uint64_t position);
  void advance();

  DataLoader& loader_;
  const std::uint64_t epoch_;
  const std::uint64_t start_;  // a position in its order
  std::uint64_t taken_ = 0;
  std::uint64_t samples_taken_ = 0;
  std::optional<Batch> current_;
  detail::ImageBatches batches_;
  // Begins after the engine and goes after it: a worker that waits for what is being fetched for it is told to stop
  // first, or it would begin to fetch that itself.
  std::unique_ptr<ReadAhead> read_ahead_;
  detail::BatchEngine engine_;
};

}  // namespace libtrain::data
