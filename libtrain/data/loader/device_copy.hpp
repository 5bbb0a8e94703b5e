#pragma once

#include <memory>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <libtrain/data/batch.hpp>

namespace libtrain::data::detail {

/// Copies batches from pinned memory to a GPU on a stream of its own, beside what the GPU computes. Any thread may call
/// it.
class DeviceCopy {
 public:
  /// A batch on its way.
  struct Transfer {
    Batch batch = {};
    c10::Event done;
  };

  /// Throws UsageError for the CPU, and for a device without a number.
  explicit DeviceCopy(c10::Device device);

  /// Returns at once.
  std::unique_ptr<Transfer> start(const Batch& host) const;

  /// The batch, for the calling thread's current stream, which waits for the copy; the host does not.
  Batch finish(std::unique_ptr<Transfer> transfer) const;

 private:
  c10::Device device_;
  c10::Stream stream_;  // one: LibTorch's allocator keeps memory for each
};

}  // namespace libtrain::data::detail
