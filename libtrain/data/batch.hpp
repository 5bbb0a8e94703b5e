#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

namespace libtrain::data {

/// Samples stacked for one step of one rank. Its memory is reused for a later batch once nothing refers to it: neither
/// this object nor a tensor, view or graph made from it.
struct Batch {
  at::Tensor images;  ///< [B, C, H, W], of the data set's type, or that of DataLoaderOptions::normalize_on_device
  at::Tensor labels;  ///< int64 [B]; with mixing float32 [B, classes], probabilities of the classes

  std::int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
};

/// Calls `visit(tensor)` for each tensor of a batch. A loader copies batches to a GPU by this function; define one for
/// your own batch type in that type's namespace.
template <typename Visit>
void visit_tensors(Batch& batch, const Visit& visit) {
  visit(batch.images);
  visit(batch.labels);
}

/// Batches whose tensors can be visited.
template <typename B>
concept VisitableBatch = requires(B& batch) { visit_tensors(batch, [](at::Tensor&) {}); };

}  // namespace libtrain::data
