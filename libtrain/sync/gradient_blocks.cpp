#include <libtrain/sync/gradient_blocks.hpp>

#include <exception>
#include <utility>

#include <ATen/ops/from_blob.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/gradient_allocator.hpp>

namespace libtrain::detail {

namespace {

// Operators take scratch memory of a gradient's size too, such as one that reorders weights, but few at a time.
constexpr std::size_t kScratchBlocks = 2;

}  // namespace

void GradientBlocks::add(std::size_t gradient_bytes, std::size_t extra_bytes) {
  GradientAllocator::install();
  {
    const std::lock_guard lock(mutex_);
    auto& kind = kinds_[gradient_bytes];
    kind.bytes = gradient_bytes + extra_bytes;
    ++kind.wanted;
  }
  give_back(make(gradient_bytes));
}

void GradientBlocks::open() {
  std::size_t smallest = 0;
  {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    smallest = kinds_.begin()->first;
  }
  GradientAllocator::serve_this_thread_from(weak_from_this(), smallest);
}

void GradientBlocks::close() {
  const std::lock_guard lock(mutex_);
  is_open_ = false;
}

void GradientBlocks::retire() {
  const std::lock_guard lock(mutex_);
  is_open_ = false;
  communicator_ = nullptr;
}

// Not under the mutex: the communicator may itself ask LibTorch's allocator for memory.
void* GradientBlocks::make(std::size_t gradient_bytes) {
  Communicator* communicator = nullptr;
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    communicator = communicator_;
    bytes = kinds_.at(gradient_bytes).bytes;
  }
  if (communicator == nullptr) throw UsageError("The synchronizer whose gradients need memory has gone.");
  const GradientAllocator::Pause pause;
  auto block = communicator->allocate(static_cast<std::int64_t>(bytes), at::kByte);
  auto* const address = block.mutable_data_ptr();
  const std::lock_guard lock(mutex_);
  gradient_bytes_of_.emplace(address, gradient_bytes);
  kinds_.at(gradient_bytes).blocks.push_back(std::move(block));
  return address;
}

void* GradientBlocks::pop(Kind& kind) {
  if (kind.free.empty()) return nullptr;
  auto* const block = kind.free.back();
  kind.free.pop_back();
  return block;
}

void* GradientBlocks::take_for_autograd(std::size_t gradient_bytes) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      const auto found = kinds_.find(gradient_bytes);
      if (!is_open_ || found == kinds_.end()) return nullptr;
      auto& kind = found->second;
      if (auto* const block = pop(kind)) return block;
      if (kind.blocks.size() >= kind.wanted + kScratchBlocks) return nullptr;
    }
    return make(gradient_bytes);
  } catch (const std::exception&) {
    return nullptr;  // ordinary memory will do; what is wrong with the communicator its next call says
  }
}

at::Tensor GradientBlocks::take(std::size_t gradient_bytes) {
  void* address = nullptr;
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    auto& kind = kinds_.at(gradient_bytes);
    bytes = kind.bytes;
    address = pop(kind);
  }
  if (address == nullptr) address = make(gradient_bytes);
  return at::from_blob(
      address, {static_cast<std::int64_t>(bytes)}, [self = shared_from_this()](void* block) { self->give_back(block); },
      at::kByte);
}

void GradientBlocks::give_back(void* block) noexcept {
  const std::lock_guard lock(mutex_);
  kinds_.at(gradient_bytes_of_.at(block)).free.push_back(block);
}

at::Tensor GradientBlocks::block_of(const at::Tensor& tensor) const {
  auto* const address = tensor.mutable_data_ptr();
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = gradient_bytes_of_.find(address);
    if (found == gradient_bytes_of_.end() || found->second != tensor.nbytes()) return {};
    bytes = kinds_.at(found->second).bytes;
  }
  return at::from_blob(address, {static_cast<std::int64_t>(bytes)}, [storage = tensor.storage()](void*) {}, at::kByte);
}

}  // namespace libtrain::detail
