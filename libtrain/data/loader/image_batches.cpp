#include <libtrain/data/loader/image_batches.hpp>

#include <array>
#include <cstring>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/stage_clock.hpp>

namespace libtrain::data::detail {

namespace {

bool is_image_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16 || type == at::kByte;
}

void require_image(const at::Tensor& image, std::uint64_t index) {
  if (image.defined() && image.dim() == 3 && image.is_cpu() && is_image_type(image.scalar_type())) return;
  throw UsageError(text("The image of sample ", index,
                        " must be float32, float16, bfloat16 or uint8 and [C, H, W] on the CPU, but it is ",
                        image.defined() ? text(image.toString(), " ", image.sizes()) : "undefined", "."));
}

std::array<std::int64_t, 3> sizes_of(const ImageShape& shape) {
  return {shape.channels, shape.height, shape.width};
}

std::array<std::int64_t, 3> strides_of(const ImageShape& shape) {
  if (shape.format == at::MemoryFormat::ChannelsLast) return {1, shape.width * shape.channels, shape.channels};
  return {shape.height * shape.width, shape.width, 1};
}

void require_alike(const at::Tensor& image, const ImageShape& shape, std::uint64_t index) {
  require_image(image, index);
  const auto sizes = sizes_of(shape);
  if (image.sizes() == at::IntArrayRef(sizes) && image.scalar_type() == shape.type) return;
  throw UsageError(text("The image of sample ", index, " is ", image.scalar_type(), " ", image.sizes(),
                        " but others are ", shape.type, " ", at::IntArrayRef(sizes),
                        "; resize or crop all images to one shape"));
}

// Plain copies where possible: no torch operator, hence nothing but a memcpy inside a worker thread.
void store(const at::Tensor& image, const ImageShape& shape, void* to) {
  const StageScope collating(LoaderStage::collate);
  const auto bytes = static_cast<std::size_t>(image.numel()) * image.element_size();
  if (bytes == 0) return;
  if (shape.format == at::MemoryFormat::Contiguous && image.is_contiguous()) {
    std::memcpy(to, image.const_data_ptr(), bytes);
  } else {
    at::from_blob(to, sizes_of(shape), strides_of(shape), image.options()).copy_(image);
  }
}

}  // namespace

ImageBatches::ImageBatches(ImageLoader& images, const LoaderCore& loader, std::uint64_t epoch)
    : BatchMakerOf(loader, epoch), images_(images), places_(loader.slots()), batches_(loader.slots()) {}

void ImageBatches::open(std::size_t index, std::span<const std::uint64_t> indices) {
  Slot& slot = places_[index];
  Batch& batch = batches_[index];
  slot.shape = shape(indices.empty() ? 0 : indices.front());
  batch = images_.memory.take(slot.shape, std::ssize(indices));
  slot.images = static_cast<std::byte*>(batch.images.mutable_data_ptr());
  slot.labels = batch.labels.mutable_data_ptr<std::int64_t>();
}

void ImageBatches::fill(std::size_t index, std::uint64_t place, std::uint64_t sample) {
  const Slot& slot = places_[index];
  const auto bytes = static_cast<std::size_t>(slot.shape.elements()) * c10::elementSize(slot.shape.type);
  void* const to = slot.images + place * bytes;
  slot.labels[place] = loader().read_or_replace(epoch(), sample, [&](std::uint64_t actual, SampleRandom& random) {
    const std::int64_t label = images_.in_place != nullptr ? read_in_place(actual, random, slot.shape, to)
                                                           : read_and_store(actual, random, slot.shape, to);
    if (images_.classes > 0 && (label < 0 || label >= images_.classes)) {
      refuse_label(label, images_.classes, actual, images_.dataset.origin(actual));
    }
    return label;
  });
}

Batch ImageBatches::finish(std::size_t index, SampleRandom& random) {
  Batch batch = std::exchange(batches_[index], {});
  if (images_.mixing) mix_batch(*images_.mixing, random, batch);
  return batch;
}

// Known of an InPlaceDataset, otherwise the first sample ever asked for decides.
ImageShape ImageBatches::shape(std::uint64_t index) {
  const std::lock_guard lock(images_.mutex);
  if (!images_.shape) {
    images_.shape = loader().read_or_replace(epoch(), index, [this](std::uint64_t actual, SampleRandom& random) {
      const at::Tensor image = get(actual, random).image;
      require_image(image, actual);
      return ImageShape{
          .channels = image.size(0), .height = image.size(1), .width = image.size(2), .type = image.scalar_type()};
    });
  }
  return *images_.shape;
}

std::int64_t ImageBatches::read_and_store(std::uint64_t index, SampleRandom& random, const ImageShape& shape,
                                          void* image) const {
  const Sample sample = get(index, random);
  require_alike(sample.image, shape, index);
  store(sample.image, shape, image);
  return sample.label;
}

Sample ImageBatches::get(std::uint64_t index, SampleRandom& random) const {
  Sample sample = images_.dataset.get(index, random);
  if (images_.transform) {
    const StageScope transforming(LoaderStage::transform);
    images_.transform(sample, random);
  }
  return sample;
}

std::int64_t ImageBatches::read_in_place(std::uint64_t index, SampleRandom& random, const ImageShape& shape,
                                         void* image) const {
  const std::int64_t label = images_.in_place->read(index, random, image);
  if (!images_.transform) return label;
  const StageScope transforming(LoaderStage::transform);
  const auto place = at::from_blob(image, sizes_of(shape), strides_of(shape), at::TensorOptions(shape.type));
  Sample sample{place, label};
  images_.transform(sample, random);
  require_alike(sample.image, shape, index);
  const auto strides = strides_of(shape);
  if (sample.image.const_data_ptr() != image || sample.image.strides() != at::IntArrayRef(strides)) {
    // What was made from this very memory must not be written over while it is read.
    store(sample.image.is_alias_of(place) ? sample.image.clone() : sample.image, shape, image);
  }
  return sample.label;
}

}  // namespace libtrain::data::detail
