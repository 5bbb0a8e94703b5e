#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The memory of one bucket.
class BucketMemory {
 public:
  virtual ~BucketMemory() = default;

  /// All gradients of the bucket end to end: one-dimensional, of its dtype. Throws as Communicator::allocate does.
  virtual at::Tensor flat() = 0;

  /// Uses the memory of `gradient` as the bucket's memory until release(); false if that is not possible. Only right
  /// after autograd has accumulated the gradient from `incoming`.
  virtual bool adopt(const at::Tensor& /*gradient*/, const at::Tensor& /*incoming*/) { return false; }

  /// Ends a round. True if flat() is different memory in the next one; this round's memory stays with its gradients.
  virtual bool release() { return false; }
};

/// Allocates the memory of a synchronizer's buckets: flat tensors of the communicator, to which gradients are copied.
class GradientMemory {
 public:
  explicit GradientMemory(Communicator& communicator) : communicator_(communicator) {}
  virtual ~GradientMemory() = default;
  GradientMemory(const GradientMemory&) = delete;  // buckets use its memory
  GradientMemory& operator=(const GradientMemory&) = delete;

  /// For a bucket of so many elements. `is_zero_copy`: of one large gradient that may stay where autograd leaves it.
  virtual std::unique_ptr<BucketMemory> make(std::int64_t elements, at::ScalarType type, bool is_zero_copy);

  /// To be called after all calls of make().
  virtual void complete() {}

  /// Gradients created between these two calls, on the thread that calls the first, may be adopted.
  virtual void begin_backward() {}
  virtual void end_backward() {}

 protected:
  Communicator& communicator_;
};

/// Large gradients stay where autograd has left them: LibTorch's allocator gives it memory of the communicator
/// (GradientBlocks), and nothing is copied.
std::unique_ptr<GradientMemory> make_zero_copy_memory(Communicator& communicator);

}  // namespace libtrain::detail
