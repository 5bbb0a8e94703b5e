#pragma once

#include <cstddef>
#include <memory>

#include <c10/core/Allocator.h>

namespace libtrain::detail {

class GradientBlocks;

/// Replaces LibTorch's allocator of host memory and forwards all requests to it, except those of a thread whose
/// backward() creates gradients for which GradientBlocks has memory.
class GradientAllocator final : public c10::Allocator {
 public:
  /// Installs the allocator, once in a process and permanently. Does nothing if the current allocator has no raw
  /// deleter; gradients are then copied. Any thread.
  static void install();

  /// Requests of the calling thread for at least `smallest_bytes` may be served from `blocks`, while they exist, until
  /// the next call. In a forked child no request is served.
  static void serve_this_thread_from(std::weak_ptr<GradientBlocks> blocks, std::size_t smallest_bytes);

  /// While it exists, the calling thread is not served: the memory of blocks must not itself be in a block.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;  // it belongs to a scope
    Pause& operator=(const Pause&) = delete;

   private:
    const std::size_t smallest_bytes_;
  };

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* target, const void* source, std::size_t bytes) const override;

 private:
  GradientAllocator() = default;
};

}  // namespace libtrain::detail
