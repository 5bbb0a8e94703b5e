#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <libtrain/data/indexed_dataset.hpp>

namespace libtrain::data {

/// One labelled image: [C, H, W] on the CPU, of float32, float16, bfloat16 or uint8.
struct Sample {
  at::Tensor image;
  std::int64_t label = 0;
};

/// Labelled images of one shape.
class Dataset : public DatasetOf<Sample> {
 public:
  /// How many classes there are, which DataLoaderOptions::classes must allow. 0 where it is not known.
  virtual std::int64_t class_count() const { return 0; }
};

/// What all images of a data set look like.
struct ImageShape {
  std::int64_t channels = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  at::ScalarType type = at::kFloat;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;  ///< or ChannelsLast

  std::int64_t elements() const { return channels * height * width; }
};

/// A data set whose images are written straight into their batch: nothing is allocated or copied for a sample.
class InPlaceDataset : public Dataset {
 public:
  virtual ImageShape image_shape() const = 0;

  /// Writes image number `index` to `image`, image_shape().elements() of its type, dense in its format, and returns
  /// the label. Augmentation draws from `random`. Called from several threads at once. Throws as get().
  virtual std::int64_t read(std::uint64_t index, SampleRandom& random, void* image) const = 0;

  /// The same in a tensor of its own.
  Sample get(std::uint64_t index, SampleRandom& random) const final;
};

namespace detail {

/// Throws UsageError that names label, sample and file: for a label that is not in [0, classes).
[[noreturn]] void refuse_label(std::int64_t label, std::int64_t classes, std::uint64_t index,
                               const SampleOrigin& origin);

}  // namespace detail

}  // namespace libtrain::data
