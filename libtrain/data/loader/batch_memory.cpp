#include <libtrain/data/loader/batch_memory.hpp>

#include <ATen/ops/empty.h>

namespace libtrain::data::detail {

namespace {

// Whatever a user makes of a tensor, be it a view or a graph, refers to its storage. Letting go of a reference of our
// own makes what others did before they let go of theirs visible here.
bool is_free(const at::Tensor& tensor) {
  const c10::Storage ours_as_well = tensor.storage();
  return ours_as_well.use_count() == 2;
}

bool is_free(const Batch& batch) {
  return is_free(batch.images) && is_free(batch.labels);
}

// A tensor of its own, so that what users do to a batch's tensors does not come back with their memory.
at::Tensor first_of(const at::Tensor& tensor, std::int64_t samples) {
  return (tensor.size(0) == samples ? tensor : tensor.narrow(0, 0, samples)).detach();
}

Batch first_of(const Batch& batch, std::int64_t samples) {
  return {first_of(batch.images, samples), first_of(batch.labels, samples)};
}

bool is_like(const at::Tensor& images, const ImageShape& shape) {
  return images.scalar_type() == shape.type && images.size(1) == shape.channels && images.size(2) == shape.height &&
         images.size(3) == shape.width && images.is_contiguous(shape.format);
}

}  // namespace

Batch BatchMemory::take(const ImageShape& shape, std::int64_t samples) {
  const auto make = [&] {
    return Batch{at::empty({samples, shape.channels, shape.height, shape.width},
                           at::TensorOptions(shape.type).pinned_memory(pinned_), shape.format),
                 at::empty({samples}, at::TensorOptions(at::kLong).pinned_memory(pinned_))};
  };
  if (pinned_) return make();
  const std::lock_guard lock(mutex_);
  for (const auto& batch : batches_) {
    if (is_free(batch) && is_like(batch.images, shape) && batch.size() >= samples) return first_of(batch, samples);
  }
  std::erase_if(batches_, [](const Batch& batch) { return is_free(batch); });  // which is too small, or of another kind
  if (batches_.size() >= limit_) batches_.erase(batches_.begin());
  return first_of(batches_.emplace_back(make()), samples);
}

}  // namespace libtrain::data::detail
