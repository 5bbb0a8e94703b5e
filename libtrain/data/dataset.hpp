#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/base/text.hpp>
#include <libtrain/data/dataset_identity.hpp>
#include <libtrain/data/read_ahead.hpp>
#include <libtrain/data/sample_origin.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// One labelled image: [C, H, W] on the CPU, of float32, float16, bfloat16 or uint8.
struct Sample {
  at::Tensor image;
  std::int64_t label = 0;
};

/// Samples that can be read in any order. A data set of your own is a class with size() and get().
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::uint64_t size() const = 0;

  /// The sample number `index`, below size(). Called from several threads at once. The image belongs to the caller,
  /// who may change it in place. An EnvironmentError other than StorageUnavailable says that the sample is bad: see
  /// BadSampleOptions.
  virtual Sample get(std::uint64_t index) const = 0;

  /// How many classes there are, which DataLoaderOptions::classes must allow. 0 where it is not known.
  virtual std::int64_t class_count() const { return 0; }

  /// Where the sample is stored, for messages and the list of bad samples.
  virtual SampleOrigin origin(std::uint64_t index) const { return {.path = text("sample ", index)}; }

  /// Tells this data set from others: a run goes on only with a data set of the same lines, and require_same_data()
  /// compares those of all ranks. Unless overridden, the size and what origin() says. Reads no samples, and takes about
  /// a second for a million.
  virtual DatasetIdentity identity() const;

  /// How many samples in a row lie in the same file, file by file: what Order::blocks shuffles. Empty where any order
  /// costs the same.
  virtual std::vector<std::uint64_t> blocks() const { return {}; }

  /// Begins to fetch, ahead of the reader, what lies far away: see ReadAhead. Nothing where that is of no use, and then
  /// `order` is not called. Called while other threads read already. The data set must outlive the result.
  virtual std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& /*order*/) const { return nullptr; }
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

  /// The same in a tensor of its own, with random numbers of epoch 0 and seed 0.
  Sample get(std::uint64_t index) const final;
};

namespace detail {

/// Throws UsageError that names label, sample and file: for a label that is not in [0, classes).
[[noreturn]] void refuse_label(std::int64_t label, std::int64_t classes, std::uint64_t index,
                               const SampleOrigin& origin);

}  // namespace detail

}  // namespace libtrain::data
