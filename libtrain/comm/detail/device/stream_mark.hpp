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

/// A position in a stream: its end when the mark is created. On the CPU, which has no streams, it counts as passed. Any
/// thread may use it.
class StreamMark {
 public:
  /// In this thread's current stream of `device`.
  explicit StreamMark(const at::Device& device) : StreamMark(current_stream(device)) {}

  /// With c10::EventFlag::BACKEND_DEFAULT, times between two marks can be measured.
  explicit StreamMark(const c10::Stream& stream, c10::EventFlag flag = c10::EventFlag::PYTORCH_DEFAULT) {
    if (stream.device().is_cpu()) return;
    event_.emplace(stream.device_type(), flag);
    event_->record(stream);
  }

  /// Makes `stream` wait for it; the host does not wait.
  void block(const c10::Stream& stream) const {
    if (event_) event_->block(stream);
  }

  /// The same for this thread's current stream of the device.
  void block_current_stream() const {
    if (event_) event_->block(current_stream(event_->device()));
  }

  /// Blocks the host until the stream has passed it.
  void wait() const {
    if (event_) event_->synchronize();
  }

  bool is_passed() const { return !event_ || event_->query(); }

  /// The time between two marks of one device that have been passed. 0 on the CPU.
  double milliseconds_until(const StreamMark& later) const {
    return event_ && later.event_ ? event_->elapsedTime(*later.event_) : 0;
  }

 private:
  std::optional<c10::Event> event_;
};

}  // namespace libtrain::detail
