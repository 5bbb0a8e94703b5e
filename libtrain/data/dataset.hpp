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
  /// The number of classes, at most DataLoaderOptions::classes; 0 if it is not known.
  virtual std::int64_t class_count() const { return 0; }
};

/// Shape, type and memory format of every image of a data set.
struct ImageShape {
  std::int64_t channels = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  at::ScalarType type = at::kFloat;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;  ///< or ChannelsLast

  std::int64_t elements() const { return channels * height * width; }
};

/// A data set that writes its images directly into the batch: nothing is allocated or copied for a sample.
class InPlaceDataset : public Dataset {
 public:
  virtual ImageShape image_shape() const = 0;

  /// Writes the image of sample `index` to `image`: image_shape().elements() elements of its type, contiguous in its
  /// format. Returns the label. Augmentation draws from `random`. Called from several threads at once. Throws as get().
  virtual std::int64_t read(std::uint64_t index, SampleRandom& random, void* image) const = 0;

  /// Calls read() with a new tensor.
  Sample get(std::uint64_t index, SampleRandom& random) const final;
};

namespace detail {

/// Throws UsageError for a label that is not in [0, classes). The message names label, sample and file.
[[noreturn]] void refuse_label(std::int64_t label, std::int64_t classes, std::uint64_t index,
                               const SampleOrigin& origin);

}  // namespace detail

}  // namespace libtrain::data
