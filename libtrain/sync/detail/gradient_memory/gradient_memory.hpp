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

  /// All gradients of the bucket end to end: one-dimensional, of its dtype. Throws what Communicator::allocate throws.
  virtual at::Tensor flat() = 0;

  /// Makes the memory in which `gradient` lies the bucket's, until release(); false where it cannot be. Only right
  /// after autograd has accumulated the gradient out of `incoming`.
  virtual bool adopt(const at::Tensor& /*gradient*/, const at::Tensor& /*incoming*/) { return false; }

  /// Ends a round. True where flat() is other memory in the next one; this round's stays with its gradients.
  virtual bool release() { return false; }
};

/// Makes the memory of a synchronizer's buckets: flat tensors of the communicator, to which gradients are copied.
class GradientMemory {
 public:
  explicit GradientMemory(Communicator& communicator) : communicator_(communicator) {}
  virtual ~GradientMemory() = default;
  GradientMemory(const GradientMemory&) = delete;  // buckets lie in it
  GradientMemory& operator=(const GradientMemory&) = delete;

  /// For a bucket of so many elements. `is_alone`: of one large gradient.
  virtual std::unique_ptr<BucketMemory> make(std::int64_t elements, at::ScalarType type, bool is_alone);

  /// All buckets have been made.
  virtual void complete() {}

  /// Gradients made between the two, on the thread that calls the first, may be adopted.
  virtual void begin_backward() {}
  virtual void end_backward() {}

 protected:
  Communicator& communicator_;
};

/// Large gradients lie where autograd has left them: it finds free memory of the communicator when it asks LibTorch's
/// allocator (GradientBlocks), and nothing is copied.
std::unique_ptr<GradientMemory> make_zero_copy_memory(Communicator& communicator);

}  // namespace libtrain::detail
