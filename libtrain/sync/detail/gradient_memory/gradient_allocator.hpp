#pragma once

#include <cstddef>
#include <memory>

#include <c10/core/Allocator.h>

namespace libtrain::detail {

class GradientBlocks;

/// Stands before LibTorch's allocator of host memory and passes everything on to it, but for requests of a thread whose
/// backward() makes gradients that GradientBlocks has memory for.
class GradientAllocator final : public c10::Allocator {
 public:
  /// Puts it in place, once in a process; there it stays. Where the allocator that it finds has no raw deleter, nothing
  /// happens, and gradients are copied. Any thread.
  static void install();

  /// The calling thread's requests for at least `smallest_bytes` may be served from `blocks`, while they live, and from
  /// no others until it is called again. In a forked child nothing is served.
  static void serve_this_thread_from(std::weak_ptr<GradientBlocks> blocks, std::size_t smallest_bytes);

  /// While it lives, the calling thread is not served: what blocks are made of must not lie in blocks.
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
