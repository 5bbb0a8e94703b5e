#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace libtrain::data {

/// Samples stacked for one step of one rank, on the CPU.
struct Batch {
  at::Tensor images;  ///< float32 [B, C, H, W]
  at::Tensor labels;  ///< int64 [B]

  std::int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
};

}  // namespace libtrain::data
