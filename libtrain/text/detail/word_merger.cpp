#include <libtrain/text/detail/word_merger.hpp>

#include <algorithm>
#include <bit>
#include <functional>

namespace libtrain::detail {

namespace {

constexpr std::size_t kLongestShort = 48;  // bytes; beyond, a heap is faster than to look at all pairs again
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
constexpr std::uint32_t kNone = ~std::uint32_t{0};

}  // namespace

MergeTable::MergeTable(std::size_t merges) : slots_(std::bit_ceil(2 * merges + 2)), mask_(slots_.size() - 1) {
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots_.size()));
}

bool MergeTable::insert(std::uint32_t left, std::uint32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  std::size_t slot = slot_of(key);
  while (slots_[slot].key != kEmpty) {
    if (slots_[slot].key == key) return false;
    slot = (slot + 1) & mask_;
  }
  slots_[slot] = {key, merge};
  return true;
}

void WordMerger::merge(const MergeTable& merges, const std::array<std::uint32_t, 256>& ids_of_bytes,
                       std::string_view word) {
  size_ = word.size();
  if (ids_.size() < size_) {
    ids_.resize(size_);
    lengths_.resize(size_);
  }
  for (std::size_t i = 0; i < size_; ++i) {
    ids_[i] = ids_of_bytes[static_cast<unsigned char>(word[i])];
    lengths_[i] = 1;
  }
  if (size_ <= kLongestShort) {
    merge_short(merges);
  } else {
    merge_long(merges);
  }
}

void WordMerger::merge_short(const MergeTable& merges) {
  std::array<MergeTable::Merge, kLongestShort> pairs;  // of each token and the one after it
  const auto look_up = [&](std::size_t at) {
    const MergeTable::Merge* const found = merges.find(ids_[at], ids_[at + 1]);
    pairs[at] = found != nullptr ? *found : MergeTable::Merge{.rank = kNoRank};
  };
  for (std::size_t i = 0; i + 1 < size_; ++i) look_up(i);
  while (size_ > 1) {
    const std::size_t count = size_ - 1;
    std::size_t best = 0;
    for (std::size_t i = 1; i < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) return;
    ids_[best] = pairs[best].id;
    lengths_[best] += lengths_[best + 1];
    for (std::size_t i = best + 1; i + 1 < size_; ++i) {
      ids_[i] = ids_[i + 1];
      lengths_[i] = lengths_[i + 1];
      pairs[i - 1] = pairs[i];
    }
    --size_;
    if (best > 0) look_up(best - 1);
    if (best + 1 < size_) look_up(best);
  }
}

void WordMerger::push(const MergeTable& merges, std::uint32_t left, std::uint32_t right) {
  const MergeTable::Merge* const found = merges.find(ids_[left], ids_[right]);
  if (found == nullptr) return;
  heap_.push_back({found->rank, left, found->id});
  std::ranges::push_heap(heap_, std::ranges::greater{});
}

void WordMerger::merge_long(const MergeTable& merges) {
  const auto count = static_cast<std::uint32_t>(size_);
  next_.resize(std::max(next_.size(), size_));
  previous_.resize(std::max(previous_.size(), size_));
  heap_.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    next_[i] = i + 1 < count ? i + 1 : kNone;
    previous_[i] = i > 0 ? i - 1 : kNone;
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) push(merges, i, i + 1);
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, std::ranges::greater{});
    const Candidate best = heap_.back();
    heap_.pop_back();
    const std::uint32_t left = best.at;
    const std::uint32_t right = next_[left];
    if (lengths_[left] == 0 || right == kNone) continue;
    // The pair may have changed since.
    const MergeTable::Merge* const found = merges.find(ids_[left], ids_[right]);
    if (found == nullptr || found->rank != best.rank) continue;
    ids_[left] = best.id;
    lengths_[left] += lengths_[right];
    lengths_[right] = 0;
    next_[left] = next_[right];
    if (next_[left] != kNone) {
      previous_[next_[left]] = left;
      push(merges, left, next_[left]);
    }
    if (previous_[left] != kNone) push(merges, previous_[left], left);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    if (lengths_[i] == 0) continue;
    ids_[kept] = ids_[i];
    lengths_[kept++] = lengths_[i];
  }
  size_ = kept;
}

}  // namespace libtrain::detail
