#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <libtrain/base/text.hpp>
#include <libtrain/data/batch.hpp>
#include <libtrain/data/loader/loader_core.hpp>

namespace libtrain::data::detail {

/// Returns `shard`. Throws UsageError if its device is not the CPU and batches of type B cannot be copied to it.
template <typename B>
const RankShard& require_copyable(const RankShard& shard) {
  if (!VisitableBatch<B> && !shard.device.is_cpu()) {
    throw UsageError(text("Batches must be copied to ", shard.device.str(),
                          ", but the tensors of this batch type are not known. Define visit_tensors() for it."));
  }
  return shard;
}

/// Makes batches of type B on the loader's device.
template <typename B>
class BatchMakerOf : public BatchMaker {
 public:
  BatchMakerOf(const LoaderCore& loader, std::uint64_t epoch)
      : loader_(loader), epoch_(epoch), finished_(loader.slots()) {}

  void close(std::size_t slot, std::span<const std::uint64_t> indices) final {
    SampleRandom random = loader_.batch_random(epoch_, indices);
    Finished& finished = finished_[slot];
    B& batch = finished.batch.emplace(finish(slot, random));
    if (loader_.device() == nullptr) return complete(slot, batch);
    finished.copied = loader_.device()->start(tensors_of(batch), [&] { complete(slot, batch); });
  }

  /// Moves the finished batch out of the slot.
  B take(std::size_t slot) {
    Finished& finished = finished_[slot];
    B batch = std::move(*finished.batch);
    finished.batch.reset();
    if (finished.copied) loader_.device()->finish(std::move(finished.copied), tensors_of(batch));
    return batch;
  }

 protected:
  const LoaderCore& loader() const { return loader_; }
  std::uint64_t epoch() const { return epoch_; }

 private:
  struct Finished {
    std::optional<B> batch = {};
    std::unique_ptr<c10::Event> copied = {};
  };

  /// Makes the batch of the samples in the slot.
  virtual B finish(std::size_t slot, SampleRandom& random) = 0;

  /// Called once the batch is on the loader's device, or its copy is queued on the current stream.
  virtual void complete(std::size_t /*slot*/, B& /*batch*/) {}

  static std::vector<at::Tensor*> tensors_of(B& batch) {
    std::vector<at::Tensor*> tensors;
    if constexpr (VisitableBatch<B>) visit_tensors(batch, [&](at::Tensor& tensor) { tensors.push_back(&tensor); });
    return tensors;
  }

  const LoaderCore& loader_;
  const std::uint64_t epoch_;
  std::vector<Finished> finished_;
};

/// Calls `collate` with or without the random numbers of the batch.
template <typename S, typename Collate>
auto collated(const Collate& collate, std::vector<S> samples, SampleRandom& random) {
  if constexpr (std::is_invocable_v<const Collate&, std::vector<S>, SampleRandom&>) {
    return collate(std::move(samples), random);
  } else {
    return collate(std::move(samples));
  }
}

template <typename S, typename Collate>
using CollatedBy =
    decltype(collated(std::declval<const Collate&>(), std::declval<std::vector<S>>(), std::declval<SampleRandom&>()));

/// Reads the samples of a batch one by one and combines them with `collate`.
template <typename S, typename B, typename Collate>
class CollatedBatches final : public BatchMakerOf<B> {
 public:
  /// The arguments must outlive it.
  CollatedBatches(const DatasetOf<S>& dataset, const Collate& collate, const LoaderCore& loader, std::uint64_t epoch)
      : BatchMakerOf<B>(loader, epoch), dataset_(dataset), collate_(collate), samples_(loader.slots()) {}

  void open(std::size_t slot, std::span<const std::uint64_t> indices) override {
    samples_[slot] = std::vector<std::optional<S>>(indices.size());
  }

  void fill(std::size_t slot, std::uint64_t place, std::uint64_t index) override {
    samples_[slot][place] = this->loader().read_or_replace(
        this->epoch(), index,
        [this](std::uint64_t actual, SampleRandom& random) { return dataset_.get(actual, random); });
  }

 private:
  B finish(std::size_t slot, SampleRandom& random) override {
    std::vector<S> samples;
    samples.reserve(samples_[slot].size());
    for (auto& sample : samples_[slot]) samples.push_back(std::move(*sample));
    samples_[slot].clear();
    return collated(collate_, std::move(samples), random);
  }

  const DatasetOf<S>& dataset_;
  const Collate& collate_;
  std::vector<std::vector<std::optional<S>>> samples_;
};

}  // namespace libtrain::data::detail
