#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include <libtrain/data/batch.hpp>
#include <libtrain/data/dataset.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// Changes a sample after it was read, drawing from random numbers that belong to that sample and epoch. Called from
/// several threads at once.
using Transform = std::function<void(Sample&, SampleRandom&)>;

/// Reads, transforms and stacks the samples of a batch in the calling thread. Any number of threads may call it.
class BatchReader {
 public:
  /// The data set must outlive the reader.
  BatchReader(const Dataset& dataset, std::uint64_t seed, Transform transform)
      : dataset_(dataset), seed_(seed), transform_(std::move(transform)) {}

  /// The batch of these samples. No indices give a batch of size 0 with the trailing shape of the others, for which
  /// sample 0 is read. An unfinished batch is returned soon after `stop` was requested.
  /// Throws UsageError for an image that is not float32 [C, H, W] on the CPU or whose shape differs within the batch,
  /// and whatever the data set or the transform throws.
  Batch read(std::uint64_t epoch, const std::vector<std::uint64_t>& indices, const std::stop_token& stop = {}) const;

 private:
  Sample sample(std::uint64_t epoch, std::uint64_t index) const;

  const Dataset& dataset_;
  std::uint64_t seed_;
  Transform transform_;
};

}  // namespace libtrain::data
