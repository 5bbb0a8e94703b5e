#include <libtrain/data/batch_reader.hpp>

#include <cstring>

#include <ATen/ops/empty.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

Batch empty_batch(std::size_t size, at::IntArrayRef image_shape) {
  std::vector<std::int64_t> shape{static_cast<std::int64_t>(size)};
  shape.insert(shape.end(), image_shape.begin(), image_shape.end());
  return {at::empty(shape, at::kFloat), at::empty({shape[0]}, at::kLong)};
}

}  // namespace

Batch BatchReader::read(std::uint64_t epoch, const std::vector<std::uint64_t>& indices,
                        const std::stop_token& stop) const {
  if (indices.empty()) return empty_batch(0, sample(epoch, 0).image.sizes());
  Batch batch;
  for (std::size_t i = 0; i < indices.size() && !stop.stop_requested(); ++i) {
    const Sample one = sample(epoch, indices[i]);
    const at::IntArrayRef shape = one.image.sizes();
    if (i == 0) batch = empty_batch(indices.size(), shape);
    if (shape != batch.images.sizes().slice(1)) {
      throw UsageError(text("the image of sample ", indices[i], " has shape ", shape, " but that of sample ",
                            indices[0], " in the same batch has ", batch.images.sizes().slice(1),
                            "; resize or crop all images to one shape"));
    }
    // Plain copies, not at::stack: no torch operator, hence no threads of its own inside a worker thread.
    const auto count = static_cast<std::size_t>(one.image.numel());
    if (count > 0) {
      std::memcpy(batch.images.mutable_data_ptr<float>() + i * count, one.image.const_data_ptr<float>(),
                  count * sizeof(float));
    }
    batch.labels.mutable_data_ptr<std::int64_t>()[i] = one.label;
  }
  return batch;
}

Sample BatchReader::sample(std::uint64_t epoch, std::uint64_t index) const {
  Sample result = dataset_.get(index);
  if (transform_) {
    SampleRandom random(seed_, epoch, index);
    transform_(result, random);
  }
  const at::Tensor& image = result.image;
  if (!image.defined() || image.scalar_type() != at::kFloat || image.dim() != 3 || !image.is_cpu()) {
    throw UsageError(text("the image of sample ", index, " must be float32 [C, H, W] on the CPU, but it is ",
                          image.defined() ? text(image.toString(), " ", image.sizes()) : "undefined"));
  }
  result.image = image.contiguous();
  return result;
}

}  // namespace libtrain::data
