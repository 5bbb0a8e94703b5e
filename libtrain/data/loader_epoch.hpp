#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>

#include <libtrain/data/batch.hpp>
#include <libtrain/data/loader_state.hpp>

namespace libtrain::data {

class DataLoader;

namespace detail {
struct ImageBatchParts;
}

/// One pass over the batches of an epoch, for a range-for loop or next(). It can be walked once, by one thread. Its
/// worker threads start with it and stop when it is destroyed, or another one is assigned to it, after the sample that
/// each of them is reading. It can be moved, which ends its iterators; what is left then takes no call.
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

  LoaderEpoch(LoaderEpoch&&) noexcept;
  LoaderEpoch& operator=(LoaderEpoch&&) noexcept;
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

  struct Running;  // which threads refer to: it stays where it is

  LoaderEpoch(DataLoader& loader, const detail::ImageBatchParts& parts, std::uint64_t epoch, std::uint64_t position);
  void advance();
  Running& running() const;

  std::optional<Batch> current_;
  std::unique_ptr<Running> running_;
};

}  // namespace libtrain::data
