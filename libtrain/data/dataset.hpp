#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace libtrain::data {

/// One labelled image: `image` is float32 [C, H, W] on the CPU.
struct Sample {
  at::Tensor image;
  std::int64_t label = 0;
};

/// Samples that can be read in any order.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::uint64_t size() const = 0;

  /// The sample number `index`, below size(). Called from several threads at once. The image belongs to the caller,
  /// who may change it in place.
  virtual Sample get(std::uint64_t index) const = 0;
};

}  // namespace libtrain::data
