#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <libtrain/comm/detail/device/stream_mark.hpp>

namespace libtrain::detail {

/// A copy on the host of a tensor on a device, queued on this thread's current stream when it is created. A host that
/// reads it some steps later need not wait for it.
class HostCopy {
 public:
  HostCopy() = default;
  explicit HostCopy(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const at::NoGradGuard no_grad;
    copy_ = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
    copy_.copy_(tensor, /*non_blocking=*/true);
    arrival_.emplace(tensor.device());
  }

  /// Waits until the copy has arrived, if it has not. Undefined for an undefined tensor.
  const at::Tensor& get() const {
    if (arrival_ && !arrival_->is_passed()) arrival_->wait();
    return copy_;
  }

  bool is_empty() const { return !arrival_; }

 private:
  at::Tensor copy_;
  std::optional<StreamMark> arrival_;
};

}  // namespace libtrain::detail
