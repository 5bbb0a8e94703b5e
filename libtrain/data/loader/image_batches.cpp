#include <libtrain/data/loader/image_batches.hpp>

#include <utility>

#include <c10/core/ScalarType.h>

#include <libtrain/data/mixing.hpp>

namespace libtrain::data::detail {

namespace {

// Keeps the random numbers of a batch apart from those of its samples.
constexpr std::uint64_t kBatchNumbers = 0x6261746368;

}  // namespace

std::uint64_t ImageBatches::open(std::uint64_t batch, std::size_t index) {
  Slot& slot = slots_[index];
  slot.indices = parts_.sampler.batch(order_, batch, from_);
  slot.shape = parts_.reader.shape(epoch_, slot.indices.empty() ? 0 : slot.indices.front());
  slot.batch = parts_.memory.take(slot.shape, static_cast<std::int64_t>(slot.indices.size()));
  slot.images = static_cast<std::byte*>(slot.batch.images.mutable_data_ptr());
  slot.labels = slot.batch.labels.mutable_data_ptr<std::int64_t>();
  return slot.indices.size();
}

void ImageBatches::fill(std::uint64_t /*batch*/, std::size_t index, std::uint64_t sample) {
  const Slot& slot = slots_[index];
  const auto bytes = static_cast<std::size_t>(slot.shape.elements()) * c10::elementSize(slot.shape.type);
  slot.labels[sample] = parts_.reader.read(epoch_, slot.indices[sample], slot.shape, slot.images + sample * bytes);
}

void ImageBatches::close(std::uint64_t /*batch*/, std::size_t index) {
  Slot& slot = slots_[index];
  if (parts_.mixing) {
    SampleRandom random(parts_.seed ^ kBatchNumbers, epoch_, slot.indices.empty() ? 0 : slot.indices.front());
    mix_batch(*parts_.mixing, random, slot.batch);
  }
  if (parts_.device != nullptr) slot.transfer = parts_.device->start(std::exchange(slot.batch, {}));
}

std::vector<std::uint64_t> ImageBatches::indices() const {
  std::vector<std::uint64_t> all;
  for (std::uint64_t batch = 0; batch < parts_.sampler.batches(from_); ++batch) {
    const auto indices = parts_.sampler.batch(order_, batch, from_);
    all.insert(all.end(), indices.begin(), indices.end());
  }
  return all;
}

Batch ImageBatches::take(std::size_t index) {
  Slot& slot = slots_[index];
  if (slot.transfer) return parts_.device->finish(std::move(slot.transfer));
  return std::exchange(slot.batch, {});
}

}  // namespace libtrain::data::detail
