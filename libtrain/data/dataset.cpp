#include <libtrain/data/dataset.hpp>

#include <string>

#include <ATen/ops/empty.h>

#include <libtrain/base/error.hpp>

namespace libtrain::data {

Sample InPlaceDataset::get(std::uint64_t index, SampleRandom& random) const {
  const ImageShape shape = image_shape();
  const auto batch =
      at::empty({1, shape.channels, shape.height, shape.width}, at::TensorOptions(shape.type), shape.format);
  const std::int64_t label = read(index, random, batch.mutable_data_ptr());
  return {batch.squeeze(0), label};
}

void detail::refuse_label(std::int64_t label, std::int64_t classes, std::uint64_t index, const SampleOrigin& origin) {
  const std::string sample = text("sample ", index);
  throw UsageError(text("label ", label, " of ", sample, origin.path == sample ? "" : text(" in '", origin.path, "'"),
                        origin.offset == 0 ? "" : text(" (byte offset ", origin.offset, ")"), " is ",
                        label < 0 ? "below 0" : text("not below the model's ", classes, " classes"),
                        ". Correct it, or use a model with as many classes as the labels need."));
}

}  // namespace libtrain::data
