#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace libtrain::detail {

/// The current stream of this thread on a device that has streams.
inline c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl{device.type()}.getStream(device);
}

/// A position in this thread's current stream of `device`: the end of the stream when the mark is created. On the CPU,
/// which has no streams, it counts as passed. Any thread may use it.
class StreamMark {
 public:
  explicit StreamMark(const at::Device& device) : device_(device) {
    if (device.is_cpu()) return;
    event_.emplace(device.type());
    event_->record(current_stream(device));
  }

  /// Makes this thread's current stream wait for it; the host does not wait.
  void block_current_stream() const {
    if (event_) event_->block(current_stream(device_));
  }

  /// Blocks the host until the stream has passed it.
  void wait() const {
    if (event_) event_->synchronize();
  }

  bool is_passed() const { return !event_ || event_->query(); }

 private:
  at::Device device_;
  std::optional<c10::Event> event_;
};

}  // namespace libtrain::detail
