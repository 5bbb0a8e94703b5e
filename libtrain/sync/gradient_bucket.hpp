#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/bucket_plan.hpp>

namespace libtrain::detail {

/// The memory of one bucket: a flat tensor in which each member's gradient has its place, laid out like its parameter.
class GradientBucket {
 public:
  /// `parameters` are those that `plan.members` refers to, in that order.
  GradientBucket(const Bucket& plan, const std::vector<at::Tensor>& parameters, Communicator& communicator);

  /// All gradients end to end, padding included, one-dimensional.
  const at::Tensor& flat() const { return flat_; }

  /// The place of the member-th gradient: its parameter's shape, and its strides where those are dense. Not an autograd
  /// view: `Optimizer::zero_grad(false)` detaches gradients in place, which views refuse.
  const at::Tensor& gradient(std::size_t member) const { return gradients_[member]; }

 private:
  at::Tensor flat_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace libtrain::detail
