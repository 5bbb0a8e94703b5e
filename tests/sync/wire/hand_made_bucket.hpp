#pragma once

// Buckets without a synchronizer, for tests of wire formats.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

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

/// Whether all elements of `bucket.flat` between the gradients are zero.
inline bool padding_is_zero(const BucketView& bucket) {
  auto rest = bucket.flat.cpu().clone();
  for (const auto& gradient : bucket.gradients) {
    rest.as_strided(gradient.sizes(), gradient.strides(), gradient.storage_offset()).zero_();
  }
  return rest.eq(0).all().item().toBool();
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
  for (const auto& bucket : buckets) EXPECT_TRUE(padding_is_zero(bucket)) << "bucket " << bucket.index;
  return calls;
}

/// Plans and averages one bucket, and returns how often it was advanced.
inline int average_bucket(WireFormat& format, const BucketView& bucket, Communicator& communicator) {
  format.plan({bucket}, communicator);
  return average_buckets(format, {bucket}, communicator).front();
}

/// Standard normal numbers in float64 on the host, a function of `seed`. Ranks that are threads share no generator.
inline at::Tensor random_tensor(std::uint64_t seed, at::IntArrayRef sizes) {
  return at::empty(sizes, at::kDouble).normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
}

/// Whether every element of `value` is within `bound`, a tensor or a number, of `expected`; all in float64.
template <typename Bound>
::testing::AssertionResult is_within(const at::Tensor& value, const at::Tensor& expected, const Bound& bound) {
  const auto distances = value.cpu().to(at::kDouble).sub(expected.to(at::kDouble)).abs();
  if (distances.le(bound).all().item().toBool()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "The largest distance is " << distances.max().item().toDouble();
}

/// The relative distance in the Frobenius norm.
inline double distance(const at::Tensor& value, const at::Tensor& expected) {
  return value.cpu().to(at::kDouble).sub(expected).norm().item().toDouble() / expected.norm().item().toDouble();
}

}  // namespace libtrain::test
