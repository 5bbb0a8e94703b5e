#include <bench/decode_then_crop.hpp>

#include <cstddef>
#include <span>
#include <utility>

#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/geometry.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>
#include <libtrain/data/image/resize.hpp>

namespace libtrain::bench {

namespace {

struct Worker {
  data::EncodedImage encoded = {};
  data::ImageDecoder decoder = {};
  data::Image picture = {};
  data::Resizer resizer = {};
};

void decode(Worker& worker, const std::string& name) {
  const auto file = std::as_bytes(std::span{worker.encoded.bytes});
  worker.decoder.decode(file, data::read_image_header(file, name), {.name = name}, worker.picture);
}

}  // namespace

DecodeThenCrop::DecodeThenCrop(std::shared_ptr<const data::ImageSource> source,
                               const data::ImagePipelineOptions& options)
    : source_(std::move(source)), options_(options) {}

data::ImageShape DecodeThenCrop::image_shape() const {
  return {.channels = options_.channels,
          .height = options_.height,
          .width = options_.width,
          .type = at::kHalf,
          .format = at::MemoryFormat::ChannelsLast};
}

std::int64_t DecodeThenCrop::read(std::uint64_t index, data::SampleRandom& random, void* image) const {
  thread_local Worker worker;
  source_->read(index, worker.encoded);
  decode(worker, source_->origin(index).path);
  const auto crop = data::random_resized_crop(worker.picture.width, worker.picture.height,
                                              options_.random_resized_crop.value(), random);
  const bool is_flipped = random.uniform() < options_.flip_probability;
  worker.resizer.resize(
      data::view(worker.picture, crop),
      {.flip = is_flipped ? data::Flip::horizontal : data::Flip::none, .normalization = options_.normalization},
      {.pixels = image,
       .width = options_.width,
       .height = options_.height,
       .channels = options_.channels,
       .type = data::PixelType::float16,
       .layout = data::Layout::nhwc});
  return worker.encoded.label;
}

}  // namespace libtrain::bench
