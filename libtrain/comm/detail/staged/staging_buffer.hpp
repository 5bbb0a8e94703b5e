#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/device/stream_mark.hpp>

namespace libtrain::detail {

/// Host memory between a device and a host communicator: allocated by the communicator, and page-locked if the device's
/// driver supports that. One thread at a time may use it.
class StagingBuffer {
 public:
  /// Allocates at least `elements` elements.
  StagingBuffer(Communicator& host, const at::Device& device, std::int64_t elements, at::ScalarType type);

  /// Waits for the device's last copy, at most one second. Memory that a copy may still use is never freed.
  ~StagingBuffer();

  StagingBuffer(const StagingBuffer&) = delete;  // the memory is registered by its address
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  at::ScalarType type() const { return memory_.scalar_type(); }
  std::int64_t elements() const { return memory_.numel(); }

  /// The first `elements` elements, one-dimensional.
  at::Tensor first(std::int64_t elements) const { return memory_.narrow(0, 0, elements); }

  /// The device may use the memory until its stream has passed `mark`.
  void hold_until(std::shared_ptr<const StreamMark> mark) { last_copy_ = std::move(mark); }

  /// Whether the device has finished using it.
  bool is_free();

 private:
  at::Tensor memory_;
  std::shared_ptr<void> registration_;  // destroyed before the memory
  std::shared_ptr<const StreamMark> last_copy_;
};

}  // namespace libtrain::detail
