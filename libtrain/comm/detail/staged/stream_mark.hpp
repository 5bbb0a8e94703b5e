#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace libtrain::detail {

/// This thread's current stream of a device that has streams.
inline c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl{device.type()}.getStream(device);
}

/// A place in this thread's current stream of `device`: after what the stream holds when the mark is made. On the CPU,
/// which has no streams, it has been passed from the beginning. Any thread may use it.
class StreamMark {
 public:
  explicit StreamMark(const at::Device& device) : device_(device) {
    if (device.is_cpu()) return;
    event_.emplace(device.type());
    event_->record(current_stream(device));
  }

  /// Makes this thread's current stream wait for it; the host does not.
  void block_current_stream() const {
    if (event_) event_->block(current_stream(device_));
  }

  /// Returns when it has been passed.
  void wait() const {
    if (event_) event_->synchronize();
  }

  bool is_passed() const { return !event_ || event_->query(); }

 private:
  at::Device device_;
  std::optional<c10::Event> event_;
};

}  // namespace libtrain::detail
