#include <libtrain/data/loader/sample_reader.hpp>

#include <array>
#include <cstring>
#include <utility>

#include <ATen/ops/from_blob.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/stage_clock.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

namespace {

// So many bad samples in a row are no accident.
constexpr std::uint64_t kAttempts = 32;

bool is_image_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16 || type == at::kByte;
}

void require_image(const at::Tensor& image, std::uint64_t index) {
  if (image.defined() && image.dim() == 3 && image.is_cpu() && is_image_type(image.scalar_type())) return;
  throw UsageError(text("the image of sample ", index,
                        " must be float32, float16, bfloat16 or uint8 and [C, H, W] on the CPU, but it is ",
                        image.defined() ? text(image.toString(), " ", image.sizes()) : "undefined"));
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
  throw UsageError(text("the image of sample ", index, " is ", image.scalar_type(), " ", image.sizes(),
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

SampleReader::SampleReader(const Dataset& dataset, std::uint64_t seed, Transform transform, BadSamples& bad_samples,
                           std::int64_t classes)
    : dataset_(dataset),
      in_place_(dynamic_cast<const InPlaceDataset*>(&dataset)),
      seed_(seed),
      transform_(std::move(transform)),
      bad_samples_(bad_samples),
      classes_(classes) {
  if (in_place_ != nullptr) shape_ = in_place_->image_shape();
}

// The random numbers are those of the sample that is replaced, so that the other one does not look twice the same in an
// epoch.
template <typename Read>
auto SampleReader::read_or_replace(std::uint64_t epoch, std::uint64_t index, const Read& read) const {
  std::uint64_t actual = index;
  for (std::uint64_t attempt = 0;; ++attempt) {
    SampleRandom random(seed_, epoch, index);
    try {
      return read(actual, random);
    } catch (const StorageUnavailable&) {
      throw;  // the sample is as good as any
    } catch (const EnvironmentError& error) {
      if (!bad_samples_.are_allowed() || attempt == kAttempts) throw;
      const std::uint64_t next = replacement_of(index, seed_, epoch, attempt, dataset_.size());
      bad_samples_.add({.epoch = epoch,
                        .index = actual,
                        .origin = dataset_.origin(actual),
                        .reason = error.what(),
                        .replacement = next});
      actual = next;
    }
  }
}

ImageShape SampleReader::shape(std::uint64_t epoch, std::uint64_t index) {
  const std::lock_guard lock(mutex_);
  if (!shape_) {
    shape_ = read_or_replace(epoch, index, [this](std::uint64_t actual, SampleRandom& random) {
      const at::Tensor image = get(actual, random).image;
      require_image(image, actual);
      return ImageShape{
          .channels = image.size(0), .height = image.size(1), .width = image.size(2), .type = image.scalar_type()};
    });
  }
  return *shape_;
}

std::int64_t SampleReader::read(std::uint64_t epoch, std::uint64_t index, const ImageShape& shape, void* image) const {
  return read_or_replace(epoch, index, [&](std::uint64_t actual, SampleRandom& random) {
    const std::int64_t label = in_place_ != nullptr ? read_in_place(actual, random, shape, image)
                                                    : read_and_store(actual, random, shape, image);
    if (classes_ > 0 && (label < 0 || label >= classes_)) {
      refuse_label(label, classes_, actual, dataset_.origin(actual));
    }
    return label;
  });
}

std::int64_t SampleReader::read_and_store(std::uint64_t index, SampleRandom& random, const ImageShape& shape,
                                          void* image) const {
  const Sample sample = get(index, random);
  require_alike(sample.image, shape, index);
  store(sample.image, shape, image);
  return sample.label;
}

Sample SampleReader::get(std::uint64_t index, SampleRandom& random) const {
  Sample sample = dataset_.get(index);
  if (transform_) {
    const StageScope transforming(LoaderStage::transform);
    transform_(sample, random);
  }
  return sample;
}

std::int64_t SampleReader::read_in_place(std::uint64_t index, SampleRandom& random, const ImageShape& shape,
                                         void* image) const {
  const std::int64_t label = in_place_->read(index, random, image);
  if (!transform_) return label;
  const StageScope transforming(LoaderStage::transform);
  const auto place = at::from_blob(image, sizes_of(shape), strides_of(shape), at::TensorOptions(shape.type));
  Sample sample{place, label};
  transform_(sample, random);
  require_alike(sample.image, shape, index);
  const auto strides = strides_of(shape);
  if (sample.image.const_data_ptr() != image || sample.image.strides() != at::IntArrayRef(strides)) {
    // What was made from this very memory must not be written over while it is read.
    store(sample.image.is_alias_of(place) ? sample.image.clone() : sample.image, shape, image);
  }
  return sample.label;
}

}  // namespace libtrain::data::detail
