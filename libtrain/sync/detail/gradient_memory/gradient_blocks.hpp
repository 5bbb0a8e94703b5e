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

/// Memory of a communicator in which autograd itself leaves large gradients, so that they need not be copied to where
/// they are reduced.
///
/// After open(), LibTorch's allocator of host memory serves the calling thread's requests for exactly a gradient's
/// bytes from here, until anybody calls close(); it serves all others as ever. A block is taken by one tensor at a time
/// and comes back when that tensor's storage has gone. Blocks lie side by side in slabs; after retire() a slab goes as
/// soon as no tensor has a block of it, which may be after this object's owner and the communicator have gone. Owned by
/// std::shared_ptr; any thread may call it.
class GradientBlocks : public std::enable_shared_from_this<GradientBlocks> {
 public:
  /// Slabs hold no more than this, so that a gradient that a user keeps does not keep all others' memory; one block may
  /// be larger.
  static constexpr std::size_t kSlabBytes = 32 << 20;

  explicit GradientBlocks(Communicator& communicator) : communicator_(&communicator) {}
  GradientBlocks(const GradientBlocks&) = delete;  // tensors lie in its memory
  GradientBlocks& operator=(const GradientBlocks&) = delete;

  /// One more gradient of so many bytes.
  void add(std::size_t gradient_bytes);

  /// Makes the blocks of all gradients added so far. Throws as Communicator::allocate does, and UsageError after
  /// retire().
  void make_all();

  /// Serves the calling thread, and those that have called it before. Not before the first add().
  void open();

  /// Serves no synchronizer. Also lets go of blocks that were made for scratch memory and not wanted since the last
  /// close().
  void close();

  /// No more blocks are made, and free ones go: the communicator may go. Waits for threads that are making one.
  void retire();

  /// A block that is free, for a gradient of a size that was added, made where there is none; a tensor of bytes that
  /// gives it back. Throws as make_all() does.
  at::Tensor take(std::size_t gradient_bytes);

  /// The block in which `tensor` lies, as bytes that share its storage's life; undefined where it is none of these.
  at::Tensor block_of(const at::Tensor& tensor) const;

  /// For the allocator: null where no block is to be had.
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
