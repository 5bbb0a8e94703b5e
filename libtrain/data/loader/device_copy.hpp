#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace libtrain::data::detail {

/// Copies tensors from the host to a GPU on a stream of its own, beside what the GPU computes. Any thread may call it.
class DeviceCopy {
 public:
  /// Throws UsageError for the CPU, and for a device without a number.
  explicit DeviceCopy(c10::Device device);

  /// Puts copies on the GPU in the place of the tensors, from pinned memory if they are not in such yet, and returns at
  /// once what records the end of copying.
  std::unique_ptr<c10::Event> start(const std::vector<at::Tensor*>& tensors) const;

  /// Makes the calling thread's current stream, though not the host, wait for the copies that `done` is of.
  void finish(std::unique_ptr<c10::Event> done, const std::vector<at::Tensor*>& tensors) const;

 private:
  c10::Device device_;
  c10::Stream stream_;  // one: LibTorch's allocator keeps memory for each
};

}  // namespace libtrain::data::detail
