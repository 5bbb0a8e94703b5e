#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <libtrain/data/mixing.hpp>

namespace libtrain::data::detail {

/// From ids to positions: open addressing with linear probing, one allocation, several times as fast as
/// std::unordered_map on the hundreds of thousands of ids of an annotation file.
class CocoIdTable {
 public:
  explicit CocoIdTable(std::size_t expected = 0) {
    std::size_t slots = 16;
    while (slots < 2 * expected) slots *= 2;
    slots_.resize(slots);
  }

  /// False, with nothing changed, where `id` is there already.
  bool insert(std::int64_t id, std::uint32_t position) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[slot_of(id)];
    if (slot.used) return false;
    slot = {.id = id, .position = position, .used = true};
    ++used_;
    return true;
  }

  std::optional<std::uint32_t> find(std::int64_t id) const {
    const Slot& slot = slots_[slot_of(id)];
    if (!slot.used) return std::nullopt;
    return slot.position;
  }

 private:
  struct Slot {
    std::int64_t id = 0;
    std::uint32_t position = 0;
    bool used = false;
  };

  // Of `id`, or the free one where it would go.
  std::size_t slot_of(std::int64_t id) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = mix(static_cast<std::uint64_t>(id)) & mask;
    while (slots_[slot].used && slots_[slot].id != id) slot = (slot + 1) & mask;
    return slot;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.used) slots_[slot_of(slot.id)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace libtrain::data::detail
