#include <libtrain/data/dataset.hpp>

#include <ATen/ops/empty.h>

namespace libtrain::data {

Sample InPlaceDataset::get(std::uint64_t index) const {
  const ImageShape shape = image_shape();
  const auto batch =
      at::empty({1, shape.channels, shape.height, shape.width}, at::TensorOptions(shape.type), shape.format);
  SampleRandom random(0, 0, index);
  const std::int64_t label = read(index, random, batch.mutable_data_ptr());
  return {batch.squeeze(0), label};
}

}  // namespace libtrain::data
