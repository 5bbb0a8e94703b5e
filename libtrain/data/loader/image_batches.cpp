#include <libtrain/data/loader/image_batches.hpp>

#include <array>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>
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
                        ", but others are ", shape.type, " ", at::IntArrayRef(sizes),
                        ". Resize or crop all images to one shape."));
}

// Uses memcpy rather than a torch operator where possible.
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

// Every view or graph that a user makes of a tensor refers to its storage. Releasing our own reference makes what other
// threads did before they released theirs visible here.
bool is_free(const at::Tensor& tensor) {
  const c10::Storage own_reference = tensor.storage();
  return own_reference.use_count() == 2;
}

bool is_free(const Batch& batch) {
  return is_free(batch.images) && is_free(batch.labels);
}

// A new tensor object, so that what users do to a batch's tensors is not seen by the next batch in that memory.
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

void require_bytes(const ImageShape& shape) {
  if (shape.type == at::kByte && (shape.channels == 1 || shape.channels == 3)) return;
  throw UsageError(text(
      "DataLoaderOptions::normalize_on_device needs uint8 images with 1 or 3 channels, but those of the data set are ",
      shape.type, " with ", shape.channels,
      ". Read them as bytes, such as with PixelType::uint8, or leave the option out."));
}

Batch BatchMemory::take(const ImageShape& shape, std::int64_t samples) {
  const auto make = [&] {
    return Batch{at::empty({samples, shape.channels, shape.height, shape.width}, options(shape.type), shape.format),
                 at::empty({samples}, options(at::kLong))};
  };
  if (pinned_) return make();
  const std::lock_guard lock(mutex_);
  for (const auto& batch : batches_) {
    if (is_free(batch) && is_like(batch.images, shape) && batch.size() >= samples) return first_of(batch, samples);
  }
  std::erase_if(batches_, [](const Batch& batch) { return is_free(batch); });  // too small, or of another shape or type
  if (batches_.size() >= limit_) batches_.erase(batches_.begin());
  return first_of(batches_.emplace_back(make()), samples);
}

ImageBatches::ImageBatches(ImageLoaderState& images, const LoaderCore& loader, std::uint64_t epoch)
    : BatchMakerOf(loader, epoch), images_(images), slots_(loader.slots()), batches_(loader.slots()) {}

void ImageBatches::open(std::size_t slot, std::span<const std::uint64_t> indices) {
  Slot& to = slots_[slot];
  Batch& batch = batches_[slot];
  to.shape = shape(indices.empty() ? 0 : indices.front());
  batch = images_.memory.take(to.shape, std::ssize(indices));
  to.images = static_cast<std::byte*>(batch.images.mutable_data_ptr());
  to.labels = batch.labels.mutable_data_ptr<std::int64_t>();
}

void ImageBatches::fill(std::size_t slot, std::uint64_t place, std::uint64_t index) {
  const Slot& to = slots_[slot];
  const auto bytes = static_cast<std::size_t>(to.shape.elements()) * c10::elementSize(to.shape.type);
  void* const image = to.images + place * bytes;
  to.labels[place] = loader().read_or_replace(epoch(), index, [&](std::uint64_t actual, SampleRandom& random) {
    const std::int64_t label = images_.in_place != nullptr ? read_in_place(actual, random, to.shape, image)
                                                           : read_and_store(actual, random, to.shape, image);
    if (images_.classes > 0 && (label < 0 || label >= images_.classes)) {
      refuse_label(label, images_.classes, actual, images_.dataset.origin(actual));
    }
    return label;
  });
}

Batch ImageBatches::finish(std::size_t slot, SampleRandom& random) {
  Batch batch = std::exchange(batches_[slot], {});
  if (!images_.mixing) return batch;
  const BatchMixing& mixing = *images_.mixing;
  const ImageShape& shape = slots_[slot].shape;
  const auto drawn = batch.size() > 0 ? draw_mixing(mixing, shape.width, shape.height, random) : DrawnMixing{};
  batch.labels = mix_labels(drawn, batch.labels, mixing.classes, images_.memory.options(at::kFloat));
  if (images_.normalize) {
    slots_[slot].mixing = drawn;
  } else if (batch.size() > 0) {
    mix_images(drawn, batch.images);
  }
  return batch;
}

void ImageBatches::complete(std::size_t slot, Batch& batch) {
  if (!images_.normalize) return;
  const StageScope transforming(LoaderStage::transform);
  batch.images = (*images_.normalize)(batch.images);
  const auto mixing = std::exchange(slots_[slot].mixing, std::nullopt);
  if (mixing && batch.size() > 0) mix_images(*mixing, batch.images);
}

// Known for an InPlaceDataset, otherwise that of the first sample that is read.
ImageShape ImageBatches::shape(std::uint64_t index) {
  const std::lock_guard lock(images_.mutex);
  if (!images_.shape) {
    images_.shape = loader().read_or_replace(epoch(), index, [this](std::uint64_t actual, SampleRandom& random) {
      const at::Tensor image = get(actual, random).image;
      require_image(image, actual);
      return ImageShape{
          .channels = image.size(0), .height = image.size(1), .width = image.size(2), .type = image.scalar_type()};
    });
    if (images_.normalize) require_bytes(*images_.shape);
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
    // A tensor that is a view of this memory must not be overwritten while it is copied.
    store(sample.image.is_alias_of(place) ? sample.image.clone() : sample.image, shape, image);
  }
  return sample.label;
}

}  // namespace libtrain::data::detail
