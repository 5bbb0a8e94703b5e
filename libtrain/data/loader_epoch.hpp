#pragma once

#include <atomic>
#include <cstdint>
#include <iterator>
#include <optional>

#include <libtrain/data/batch.hpp>
#include <libtrain/data/ordered_prefetcher.hpp>

namespace libtrain::data {

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
      epoch_->current_ = epoch_->next();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !epoch_->current_; }

   private:
    LoaderEpoch* epoch_;
  };

  /// Made by DataLoader::epoch. `seconds_waiting` must outlive this object.
  LoaderEpoch(std::uint64_t first_step, std::uint64_t steps, int workers, std::uint64_t window,
              detail::OrderedPrefetcher<Batch>::Produce produce, std::atomic<double>& seconds_waiting);

  /// The next batch in the order of the steps, or nothing after the last one. Throws what reading it threw.
  std::optional<Batch> next();

  /// Reads the first batch.
  Iterator begin() { return ++Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::atomic<double>& seconds_waiting_;
  std::optional<Batch> current_;
  detail::OrderedPrefetcher<Batch> batches_;
};

}  // namespace libtrain::data
