#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace libtrain::data::detail {

/// Copies tensors from the host to a GPU on its own stream, in parallel with the GPU's computation. Any thread may call
/// it.
class DeviceCopy {
 public:
  /// Throws UsageError for the CPU, and for a device without an index.
  explicit DeviceCopy(c10::Device device);

  /// Replaces the tensors by copies on the GPU, which it starts without waiting for them; tensors that are not in
  /// pinned memory are first copied to such memory. Then calls `complete`, which may queue further work on the copies:
  /// the stream is the current one. Returns an event that records the end of both.
  std::unique_ptr<c10::Event> start(const std::vector<at::Tensor*>& tensors,
                                    const std::function<void()>& complete) const;

  /// Makes the calling thread's current stream wait for the work that `done` records. The host does not wait.
  void finish(std::unique_ptr<c10::Event> done, const std::vector<at::Tensor*>& tensors) const;

 private:
  c10::Device device_;
  c10::Stream stream_;  // only one, because LibTorch's allocator keeps memory for each stream
};

}  // namespace libtrain::data::detail
