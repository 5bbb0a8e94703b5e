#include <libtrain/sync/detail/gradient_memory/gradient_allocator.hpp>

#include <atomic>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <pthread.h>

#include <c10/core/CPUAllocator.h>

#include <libtrain/sync/detail/gradient_memory/gradient_blocks.hpp>

namespace libtrain::detail {

namespace {

// The owners of the blocks that tensors use. Never destroyed: tensors may outlive all other objects.
struct Taken {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<GradientBlocks>> owners;
};

Taken& taken() {
  static auto* const blocks = new Taken;
  return *blocks;
}

// Not a member of Served, so that it may be read while a thread ends.
thread_local std::size_t smallest_of_this_thread = std::numeric_limits<std::size_t>::max();

struct Served {
  std::weak_ptr<GradientBlocks> blocks = {};
  ~Served() { smallest_of_this_thread = std::numeric_limits<std::size_t>::max(); }
};
thread_local Served served_thread;

// LibTorch's allocator and its deleter. Set once, before ours is installed; atomic because LibTorch keeps its allocator
// in a plain pointer, so a thread that finds ours there is not synchronised with the thread that installed it.
constinit std::atomic<c10::Allocator*> ordinary = nullptr;
constinit std::atomic<c10::DeleterFnPtr> delete_ordinary = nullptr;

// Blocks are shared with the parent process, which does not see what a child does with them.
std::atomic<bool> is_forked_child = false;

void give_back(void* memory) {
  std::shared_ptr<GradientBlocks> owner;
  {
    auto& all = taken();
    const std::lock_guard lock(all.mutex);
    if (auto found = all.owners.extract(memory)) owner = std::move(found.mapped());
  }
  if (owner && is_forked_child) {
    new std::shared_ptr<GradientBlocks>(std::move(owner));  // never destroyed: the block is the parent's
  } else if (owner) {
    owner->give_back(memory);
  } else {
    delete_ordinary.load(std::memory_order_relaxed)(memory);  // raw_deallocate() has one deleter only
  }
}

void* take(std::size_t bytes) {
  if (is_forked_child) return nullptr;
  auto blocks = served_thread.blocks.lock();
  if (!blocks) return nullptr;
  auto* const block = blocks->take_for_autograd(bytes);
  if (block == nullptr) return nullptr;
  auto& all = taken();
  const std::lock_guard lock(all.mutex);
  all.owners.emplace(block, std::move(blocks));
  return block;
}

}  // namespace

void GradientAllocator::install() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto* const found = c10::GetCPUAllocator();
    const auto deleter = found->raw_deleter();
    if (deleter == nullptr) return;  // an allocator of the program that needs its own deleters
    ordinary.store(found, std::memory_order_relaxed);
    delete_ordinary.store(deleter, std::memory_order_relaxed);
    auto* const allocator = new GradientAllocator;
    pthread_atfork([] { taken().mutex.lock(); }, [] { taken().mutex.unlock(); },
                   [] {
                     taken().mutex.unlock();
                     is_forked_child = true;
                   });
    // With the priority of LibTorch's own, so that a program can still set another.
    c10::SetCPUAllocator(allocator);
  });
}

void GradientAllocator::serve_this_thread_from(std::weak_ptr<GradientBlocks> blocks, std::size_t smallest_bytes) {
  smallest_of_this_thread = smallest_bytes;
  served_thread.blocks = std::move(blocks);
}

GradientAllocator::Pause::Pause()
    : smallest_bytes_(std::exchange(smallest_of_this_thread, std::numeric_limits<std::size_t>::max())) {}

GradientAllocator::Pause::~Pause() {
  smallest_of_this_thread = smallest_bytes_;
}

c10::DataPtr GradientAllocator::allocate(std::size_t bytes) {
  if (bytes >= smallest_of_this_thread) {
    if (auto* const block = take(bytes)) return {block, block, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  return ordinary.load(std::memory_order_relaxed)->allocate(bytes);
}

c10::DeleterFnPtr GradientAllocator::raw_deleter() const {
  return &give_back;
}

void GradientAllocator::copy_data(void* target, const void* source, std::size_t bytes) const {
  ordinary.load(std::memory_order_relaxed)->copy_data(target, source, bytes);
}

}  // namespace libtrain::detail
