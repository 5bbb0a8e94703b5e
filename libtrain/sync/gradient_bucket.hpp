#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// A parameter that has a place in a bucket.
struct BucketMember {
  std::string name = {};
  at::Tensor parameter = {};
};

/// The memory of one bucket: a flat tensor in which each member's gradient has its place, laid out like its parameter,
/// and the flags theirs at the end.
class GradientBucket {
 public:
  /// All members are of one dtype.
  GradientBucket(std::size_t index, const std::vector<BucketMember>& members, Communicator& communicator);

  const BucketView& view() const { return view_; }

  /// The place of the member-th gradient: its parameter's shape, and its strides where those are dense. Not an autograd
  /// view: `Optimizer::zero_grad(false)` detaches gradients in place, which views refuse.
  const at::Tensor& place(std::size_t member) const { return places_[member]; }

  /// All gradients end to end, padding included, without the flags.
  const at::Tensor& gradients() const { return gradients_; }

 private:
  BucketView view_;
  std::vector<at::Tensor> places_;  // apart from the view's: what a wire format does is not a change by the user
  at::Tensor gradients_;
};

}  // namespace libtrain::detail
