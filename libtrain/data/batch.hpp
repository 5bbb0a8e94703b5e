#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace libtrain::data {

/// Samples stacked for one step of one rank. Its memory is used for a later batch once nothing refers to it any more:
/// neither this object nor a tensor, view or graph made from it.
struct Batch {
  at::Tensor images;  ///< [B, C, H, W], of the data set's type
  at::Tensor labels;  ///< int64 [B]; with mixing float32 [B, classes], the shares of the classes

  std::int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
};

}  // namespace libtrain::data
