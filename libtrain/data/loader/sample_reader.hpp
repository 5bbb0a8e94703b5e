#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include <libtrain/data/dataset.hpp>
#include <libtrain/data/loader/bad_samples.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// Changes a sample after it was read, drawing from random numbers that belong to that sample and epoch. Called from
/// several threads at once.
using Transform = std::function<void(Sample&, SampleRandom&)>;

namespace detail {

/// Reads and transforms samples into memory of a batch, and others in the place of bad ones. Any number of threads may
/// call it.
class SampleReader {
 public:
  /// The data set and the bad samples must outlive the reader. `classes`: labels must be below it; 0 for any.
  SampleReader(const Dataset& dataset, std::uint64_t seed, Transform transform, BadSamples& bad_samples,
               std::int64_t classes);

  /// What all images look like: known of an InPlaceDataset, otherwise the first sample ever asked for decides, which is
  /// read for that. Throws as read().
  ImageShape shape(std::uint64_t epoch, std::uint64_t index);

  /// Writes the image to `image`, dense and of shape(), and returns the label. Throws UsageError for an image that is
  /// not [C, H, W] on the CPU or not like the others and for a label outside the classes, EnvironmentError for too many
  /// bad samples, and whatever the data set or the transform throws.
  std::int64_t read(std::uint64_t epoch, std::uint64_t index, const ImageShape& shape, void* image) const;

 private:
  template <typename Read>
  auto read_or_replace(std::uint64_t epoch, std::uint64_t index, const Read& read) const;
  Sample get(std::uint64_t index, SampleRandom& random) const;
  std::int64_t read_and_store(std::uint64_t index, SampleRandom& random, const ImageShape& shape, void* image) const;
  std::int64_t read_in_place(std::uint64_t index, SampleRandom& random, const ImageShape& shape, void* image) const;

  const Dataset& dataset_;
  const InPlaceDataset* const in_place_;  // the same, where it is one
  const std::uint64_t seed_;
  const Transform transform_;
  BadSamples& bad_samples_;
  const std::int64_t classes_;
  std::mutex mutex_;
  std::optional<ImageShape> shape_;
};

}  // namespace detail

}  // namespace libtrain::data
