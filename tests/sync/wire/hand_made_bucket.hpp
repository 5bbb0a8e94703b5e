#pragma once

// Buckets without a synchronizer, for tests of wire formats.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::test {

/// A parameter's name and a tensor of the shape, strides and dtype of its gradient.
using Named = std::pair<std::string, at::Tensor>;

/// A bucket with places for these gradients, zero-filled and padded to cache lines.
inline BucketView make_bucket(Communicator& communicator, std::size_t index, const std::vector<Named>& parameters) {
  const auto padded = [](std::int64_t elements) { return (elements + 15) / 16 * 16; };
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : parameters) elements += padded(tensor.numel());
  BucketView bucket;
  bucket.index = index;
  bucket.flat = communicator.allocate(elements, parameters.front().second.scalar_type());
  std::int64_t offset = 0;
  for (const auto& [name, tensor] : parameters) {
    bucket.names.push_back(name);
    bucket.gradients.push_back(bucket.flat.as_strided(tensor.sizes(), tensor.strides(), offset));
    offset += padded(tensor.numel());
  }
  return bucket;
}

/// Averages the buckets as wait() does, and returns how often each was advanced.
inline std::vector<int> average_buckets(WireFormat& format, const std::vector<BucketView>& buckets,
                                        Communicator& communicator) {
  std::vector<std::unique_ptr<Reduction>> reductions;
  for (const auto& bucket : buckets) reductions.push_back(format.start(bucket, communicator));
  std::vector<int> calls(buckets.size(), 0);
  for (bool pending = true; pending;) {
    pending = false;
    for (std::size_t index = 0; index < buckets.size(); ++index) {
      if (!reductions[index]) continue;
      ++calls[index];
      if (reductions[index]->advance()) {
        reductions[index].reset();
      } else {
        pending = true;
      }
    }
  }
  return calls;
}

/// Standard normal numbers in float64, a function of `seed`. Ranks that are threads share no generator.
inline at::Tensor random_tensor(std::uint64_t seed, at::IntArrayRef sizes) {
  return at::empty(sizes, at::kDouble).normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
}

/// Whether every element of `value` is within `bound`, a tensor or a number, of `expected`; all in float64.
template <typename Bound>
bool is_within(const at::Tensor& value, const at::Tensor& expected, const Bound& bound) {
  return value.to(at::kDouble).sub(expected.to(at::kDouble)).abs().le(bound).all().item().toBool();
}

/// The relative distance in the Frobenius norm.
inline double distance(const at::Tensor& value, const at::Tensor& expected) {
  return value.to(at::kDouble).sub(expected).norm().item().toDouble() / expected.norm().item().toDouble();
}

}  // namespace libtrain::test
