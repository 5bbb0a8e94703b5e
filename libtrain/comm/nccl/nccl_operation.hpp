#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <libtrain/comm/first_failure.hpp>
#include <libtrain/comm/nccl/device_operation.hpp>

namespace libtrain::detail {

/// A collective in a CUDA stream.
class NcclOperation : public DeviceOperation {
 public:
  /// Records the end of what is in `stream` now. `tensors` are what it reads and writes.
  NcclOperation(const Call& call, std::uint64_t sequence, const Deadline& deadline, std::vector<at::Tensor> tensors,
                const c10::cuda::CUDAStream& stream, std::shared_ptr<const FirstFailure> failure)
      : DeviceOperation(call, sequence, deadline),
        tensors_(std::move(tensors)),
        device_(stream.device_index()),
        failure_(std::move(failure)) {
    ended_.record(stream);
  }

  /// Makes the caller's current stream wait; the host does not. Throws where the communicator is known to have failed.
  void wait() override {
    failure_->throw_if_any();
    ended_.block(c10::cuda::getCurrentCUDAStream(device_));
  }

  bool done() override { return failure_->exists() || has_ended(); }

  bool has_ended() override { return ended_.query(); }

  void release() noexcept override { tensors_.clear(); }

 private:
  std::vector<at::Tensor> tensors_;
  c10::DeviceIndex device_;
  std::shared_ptr<const FirstFailure> failure_;
  c10::cuda::CUDAEvent ended_;
};

}  // namespace libtrain::detail
