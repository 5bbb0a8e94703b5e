#include <libtrain/comm/detail/staged/staging_pool.hpp>

#include <utility>

namespace libtrain::detail {

namespace {

constexpr std::uint64_t kMaxUnusedAllocations = 4096;
constexpr std::int64_t kSmallElements = 64 << 10;

// Buffers of up to twice the size are reused, and small buffers for anything smaller, so that messages of many sizes do
// not need one buffer each.
bool fits(const StagingBuffer& buffer, std::int64_t elements, at::ScalarType type) {
  const auto spare = buffer.elements() - elements;
  return buffer.type() == type && spare >= 0 && spare <= elements + kSmallElements;
}

}  // namespace

std::shared_ptr<StagingBuffer> StagingPool::take(std::int64_t elements, at::ScalarType type) {
  ++allocations_;
  free_unused();
  std::shared_ptr<Slot> best;
  for (const auto& slot : slots_) {
    const bool is_better = !best || slot->buffer->elements() < best->buffer->elements();
    if (is_better && fits(*slot->buffer, elements, type) && is_idle(*slot)) best = slot;
  }
  if (!best) {
    best = std::make_shared<Slot>(std::make_unique<StagingBuffer>(*host_, device_, elements, type));
    slots_.push_back(best);
  }
  best->is_allocated.store(true, std::memory_order_relaxed);
  best->last_allocation = allocations_;
  auto* buffer = best->buffer.get();
  return {buffer,
          [slot = std::move(best)](StagingBuffer*) { slot->is_allocated.store(false, std::memory_order_release); }};
}

bool StagingPool::is_idle(const Slot& slot) {
  return !slot.is_allocated.load(std::memory_order_acquire) && slot.buffer->is_free();
}

void StagingPool::free_unused() {
  std::erase_if(slots_, [this](const auto& slot) {
    return slot->last_allocation + kMaxUnusedAllocations < allocations_ && is_idle(*slot);
  });
}

}  // namespace libtrain::detail
