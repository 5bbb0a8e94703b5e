#pragma once

#include <optional>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace libtrain::detail {

/// Makes a stream of its own the current stream of this thread on a GPU while this object exists, and the GPU the
/// current device; does nothing on the CPU. CUDA graphs cannot be captured on the default stream, which also
/// synchronises with other streams of the process. Belongs to one thread.
class BodyStream {
 public:
  explicit BodyStream(const c10::Device& device);
  ~BodyStream();
  BodyStream(const BodyStream&) = delete;  // restores the previous stream once
  BodyStream& operator=(const BodyStream&) = delete;

  /// Waits until the GPU has finished the work of the stream. Throws what LibTorch throws if it has failed.
  void synchronize() const;

 private:
  std::optional<c10::Stream> stream_;
  std::optional<c10::Stream> previous_;
};

}  // namespace libtrain::detail
