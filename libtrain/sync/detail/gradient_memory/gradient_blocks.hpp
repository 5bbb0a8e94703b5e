#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// Memory of a communicator in which autograd itself leaves large gradients, so that they need not be copied for the
/// reduction.
///
/// After open(), LibTorch's allocator of host memory serves the calling thread's requests for exactly a gradient's
/// bytes from here, until close() is called; it serves all other requests as before. A block is used by one tensor at a
/// time and returns when that tensor's storage is destroyed. Blocks are parts of slabs. After retire(), a slab is freed
/// as soon as no tensor uses a block of it, possibly after this object's owner and the communicator have been
/// destroyed. Owned by std::shared_ptr; any thread may call it.
class GradientBlocks : public std::enable_shared_from_this<GradientBlocks> {
 public:
  /// The maximum size of a slab, so that a gradient that a user keeps does not keep all others' memory; one block may
  /// be larger.
  static constexpr std::size_t kSlabBytes = 32 << 20;

  explicit GradientBlocks(Communicator& communicator) : communicator_(&communicator) {}
  GradientBlocks(const GradientBlocks&) = delete;  // tensors use its memory
  GradientBlocks& operator=(const GradientBlocks&) = delete;

  /// Adds a gradient of so many bytes.
  void add(std::size_t gradient_bytes);

  /// Allocates the blocks of all gradients added so far. Throws as Communicator::allocate does, and UsageError after
  /// retire().
  void make_all();

  /// Serves the calling thread, and the threads that have called it before. Not before the first add().
  void open();

  /// Serves no thread. Also frees blocks that were allocated for scratch memory and not needed since the last close().
  void close();

  /// Allocates no more blocks, and frees unused ones: the communicator may then be destroyed. Waits for threads that
  /// are allocating a block.
  void retire();

  /// A free block for a gradient of a size that was added, allocated if there is none: a tensor of bytes, which returns
  /// the block when it is destroyed. Throws as make_all() does.
  at::Tensor take(std::size_t gradient_bytes);

  /// The block of `tensor`, as bytes that share ownership of its storage; undefined if it is not in a block.
  at::Tensor block_of(const at::Tensor& tensor) const;

  /// For the allocator: null if there is no free block.
  void* take_for_autograd(std::size_t gradient_bytes) noexcept;
  void give_back(void* block) noexcept;

 private:
  using Slab = std::shared_ptr<const at::Tensor>;
  struct Kind {
    std::size_t wanted = 0;
    std::size_t made = 0;
    std::size_t least_free = 0;  // since the last close()
    std::vector<void*> free = {};
  };
  struct Block {
    std::size_t gradient_bytes = 0;
    Slab slab = {};
  };

  void* pop(std::size_t gradient_bytes);
  Slab drop(void* block);
  void* make_one(std::size_t gradient_bytes);
  std::vector<void*> make(const std::vector<std::size_t>& gradients);
  at::Tensor allocate(std::size_t bytes);

  mutable std::mutex mutex_;
  std::condition_variable made_;
  Communicator* communicator_;
  int making_ = 0;                     // threads inside the communicator
  std::map<std::size_t, Kind> kinds_;  // by a gradient's bytes
  std::unordered_map<const void*, Block> blocks_;
  bool is_open_ = false;
};

}  // namespace libtrain::detail
