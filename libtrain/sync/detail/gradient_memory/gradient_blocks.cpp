#include <libtrain/sync/detail/gradient_memory/gradient_blocks.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ops/from_blob.h>

#include <libtrain/base/error.hpp>
#include <libtrain/sync/detail/gradient_memory/gradient_allocator.hpp>

namespace libtrain::detail {

namespace {

// Operators also allocate scratch memory of a gradient's size, such as oneDNN when it reorders weights, one at a time.
constexpr std::size_t kScratchBlocks = 1;

// Blocks start at multiples of a cache line.
std::size_t block_bytes(std::size_t gradient_bytes) {
  constexpr std::size_t kLine = 64;
  return (gradient_bytes + kLine - 1) / kLine * kLine;
}

}  // namespace

void GradientBlocks::add(std::size_t gradient_bytes) {
  GradientAllocator::install();
  const std::lock_guard lock(mutex_);
  ++kinds_[gradient_bytes].wanted;
}

void GradientBlocks::make_all() {
  std::vector<std::size_t> slab;
  std::size_t slab_bytes = 0;
  const auto flush = [&] {
    for (auto* const block : make(slab)) give_back(block);
    slab.clear();
    slab_bytes = 0;
  };
  std::vector<std::size_t> gradients;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [gradient_bytes, kind] : kinds_) {
      gradients.insert(gradients.end(), kind.wanted - std::min(kind.wanted, kind.made), gradient_bytes);
    }
  }
  for (const auto gradient_bytes : gradients) {
    if (!slab.empty() && slab_bytes + block_bytes(gradient_bytes) > kSlabBytes) flush();
    slab.push_back(gradient_bytes);
    slab_bytes += block_bytes(gradient_bytes);
  }
  if (!slab.empty()) flush();
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
  std::vector<Slab> gone;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  if (!is_open_) return;
  is_open_ = false;
  for (auto& [gradient_bytes, kind] : kinds_) {
    const auto unneeded = std::min(kind.least_free, kind.made - std::min(kind.made, kind.wanted));
    for (std::size_t count = 0; count < unneeded; ++count) gone.push_back(drop(pop(gradient_bytes)));
    kind.least_free = kind.free.size();
  }
}

void GradientBlocks::retire() {
  std::vector<Slab> gone;  // freed after the lock is released
  std::unique_lock lock(mutex_);
  is_open_ = false;
  communicator_ = nullptr;
  made_.wait(lock, [this] { return making_ == 0; });
  for (auto& [gradient_bytes, kind] : kinds_) {
    while (auto* const block = pop(gradient_bytes)) gone.push_back(drop(block));
  }
  lock.unlock();
}

// Under the mutex. Returns the slab, which the caller releases without the mutex.
GradientBlocks::Slab GradientBlocks::drop(void* block) {
  auto node = blocks_.extract(block);
  --kinds_.at(node.mapped().gradient_bytes).made;
  return std::move(node.mapped().slab);
}

// Not under the mutex: the communicator may itself use LibTorch's allocator.
at::Tensor GradientBlocks::allocate(std::size_t bytes) {
  Communicator* communicator = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) throw UsageError("The synchronizer of these gradients no longer exists.");
    communicator = communicator_;
    ++making_;
  }
  const auto finished = [this] {
    const std::lock_guard lock(mutex_);
    if (--making_ == 0) made_.notify_all();
  };
  try {
    const GradientAllocator::Pause pause;
    auto memory = communicator->allocate(static_cast<std::int64_t>(bytes), at::kByte);
    finished();
    return memory;
  } catch (...) {
    finished();
    throw;
  }
}

std::vector<void*> GradientBlocks::make(const std::vector<std::size_t>& gradients) {
  std::size_t bytes = 0;
  for (const auto gradient_bytes : gradients) bytes += block_bytes(gradient_bytes);
  const auto slab = std::make_shared<const at::Tensor>(allocate(bytes));
  auto* address = static_cast<std::byte*>(slab->mutable_data_ptr());
  std::vector<void*> made;
  const std::lock_guard lock(mutex_);
  for (const auto gradient_bytes : gradients) {
    blocks_.emplace(address, Block{.gradient_bytes = gradient_bytes, .slab = slab});
    ++kinds_.at(gradient_bytes).made;
    made.push_back(address);
    address += block_bytes(gradient_bytes);
  }
  return made;
}

void* GradientBlocks::make_one(std::size_t gradient_bytes) {
  return make({gradient_bytes}).front();
}

void* GradientBlocks::pop(std::size_t gradient_bytes) {
  auto& kind = kinds_.at(gradient_bytes);
  if (kind.free.empty()) return nullptr;
  auto* const block = kind.free.back();
  kind.free.pop_back();
  kind.least_free = std::min(kind.least_free, kind.free.size());
  return block;
}

void* GradientBlocks::take_for_autograd(std::size_t gradient_bytes) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      const auto found = kinds_.find(gradient_bytes);
      if (!is_open_ || found == kinds_.end()) return nullptr;
      if (auto* const block = pop(gradient_bytes)) return block;
      if (found->second.made >= found->second.wanted + kScratchBlocks) return nullptr;
    }
    return make_one(gradient_bytes);
  } catch (const std::exception&) {
    return nullptr;  // ordinary memory is used; the communicator's next call reports its error
  }
}

at::Tensor GradientBlocks::take(std::size_t gradient_bytes) {
  void* address = nullptr;
  {
    const std::lock_guard lock(mutex_);
    address = pop(gradient_bytes);
  }
  if (address == nullptr) address = make_one(gradient_bytes);
  return at::from_blob(
      address, {static_cast<std::int64_t>(gradient_bytes)},
      [self = shared_from_this()](void* block) { self->give_back(block); }, at::kByte);
}

void GradientBlocks::give_back(void* block) noexcept {
  Slab gone;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  auto& kind = kinds_.at(blocks_.at(block).gradient_bytes);
  const bool is_one_too_many = kind.made > kind.wanted + kScratchBlocks;  // users have kept gradients of several rounds
  if (communicator_ == nullptr || is_one_too_many) {
    gone = drop(block);
  } else {
    kind.free.push_back(block);
  }
}

at::Tensor GradientBlocks::block_of(const at::Tensor& tensor) const {
  auto* const address = tensor.mutable_data_ptr();
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end() || found->second.gradient_bytes != tensor.nbytes()) return {};
  }
  return at::from_blob(
      address, {static_cast<std::int64_t>(tensor.nbytes())}, [storage = tensor.storage()](void*) {}, at::kByte);
}

}  // namespace libtrain::detail
