#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// Whether a rank was asked to stop, the same on all ranks, in a loop without rounds of a GradientSynchronizer. All
/// ranks must call it equally often. A request is seen one call later, so that no rank waits for the others in a call.
class StopAgreement {
 public:
  explicit StopAgreement(Communicator& communicator)
      : communicator_(communicator), flag_(communicator.allocate_on_host(1, at::kByte)) {}

  bool must_stop(bool is_asked) {
    settle();
    if (must_stop_) return true;
    *flag_.mutable_data_ptr<std::uint8_t>() = is_asked ? 1 : 0;
    work_ = communicator_.all_reduce(flag_, ReduceOp::maximum);
    return false;
  }

  /// Waits for the last call's message: at the end of the loop.
  void settle() {
    if (!work_) return;
    work_->wait();
    work_.reset();
    must_stop_ = must_stop_ || *flag_.const_data_ptr<std::uint8_t>() != 0;
  }

 private:
  Communicator& communicator_;
  at::Tensor flag_;
  std::optional<Work> work_;
  bool must_stop_ = false;
};

}  // namespace libtrain::detail
