#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// Memory of a communicator in which autograd itself leaves large gradients, so that they need not be copied to where
/// they are reduced.
///
/// After open(), LibTorch's allocator of host memory serves the calling thread's requests for exactly a gradient's
/// bytes from here, until close(); it serves all others as ever. A block is taken by one tensor at a time and comes
/// back when that tensor's storage has gone; blocks that are still taken outlive this object and its communicator.
/// Any thread may call it.
class GradientBlocks : public std::enable_shared_from_this<GradientBlocks> {
 public:
  explicit GradientBlocks(Communicator& communicator) : communicator_(&communicator) {}
  GradientBlocks(const GradientBlocks&) = delete;  // tensors lie in its memory
  GradientBlocks& operator=(const GradientBlocks&) = delete;

  /// Makes one more block for a gradient of so many bytes; behind them it has `extra_bytes` that are zero at first.
  void add(std::size_t gradient_bytes, std::size_t extra_bytes);

  /// Not before the first add().
  void open();
  void close();

  /// No more blocks are made: the communicator may go.
  void retire();

  /// A block that nobody has, made where there is none; a tensor of bytes that gives it back.
  at::Tensor take(std::size_t gradient_bytes);

  /// The whole block that starts where `tensor` does, as bytes that share its storage's life; undefined where it lies
  /// in none of these blocks.
  at::Tensor block_of(const at::Tensor& tensor) const;

  /// For the allocator: null where no block is to be had.
  void* take_for_autograd(std::size_t gradient_bytes) noexcept;
  void give_back(void* block) noexcept;

 private:
  struct Kind {
    std::size_t bytes = 0;  // of a block
    std::size_t wanted = 0;
    std::vector<at::Tensor> blocks = {};
    std::vector<void*> free = {};
  };

  void* pop(Kind& kind);
  void* make(std::size_t gradient_bytes);

  mutable std::mutex mutex_;
  Communicator* communicator_;
  std::map<std::size_t, Kind> kinds_;                     // by a gradient's bytes
  std::map<const void*, std::size_t> gradient_bytes_of_;  // by block
  bool is_open_ = false;
};

}  // namespace libtrain::detail
