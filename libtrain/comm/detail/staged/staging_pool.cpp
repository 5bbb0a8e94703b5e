#include <libtrain/comm/detail/staged/staging_pool.hpp>

#include <utility>

namespace libtrain::detail {

namespace {

constexpr std::uint64_t kWantedFor = 4096;
constexpr std::int64_t kSmall = 64 << 10;

// Buffers of up to twice the size serve too, and small ones anything smaller, so that messages of many sizes do not
// need one each.
bool fits(const StagingBuffer& buffer, std::int64_t elements, at::ScalarType type) {
  const auto spare = buffer.elements() - elements;
  return buffer.type() == type && spare >= 0 && spare <= elements + kSmall;
}

}  // namespace

std::shared_ptr<StagingBuffer> StagingPool::take(std::int64_t elements, at::ScalarType type) {
  ++loans_;
  forget_unwanted();
  std::shared_ptr<Slot> best;
  for (const auto& slot : slots_) {
    const bool is_better = !best || slot->buffer->elements() < best->buffer->elements();
    if (is_better && fits(*slot->buffer, elements, type) && is_idle(*slot)) best = slot;
  }
  if (!best) {
    best = std::make_shared<Slot>(std::make_unique<StagingBuffer>(*host_, device_, elements, type));
    slots_.push_back(best);
  }
  best->is_lent.store(true, std::memory_order_relaxed);
  best->last_loan = loans_;
  auto* buffer = best->buffer.get();
  return {buffer, [slot = std::move(best)](StagingBuffer*) { slot->is_lent.store(false, std::memory_order_release); }};
}

bool StagingPool::is_idle(const Slot& slot) {
  return !slot.is_lent.load(std::memory_order_acquire) && slot.buffer->is_free();
}

void StagingPool::forget_unwanted() {
  std::erase_if(slots_, [this](const auto& slot) { return slot->last_loan + kWantedFor < loans_ && is_idle(*slot); });
}

}  // namespace libtrain::detail
