#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace libtrain::detail {

/// Which pairs of tokens become which token, and in which order: a hash table with open addressing.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = 0;  ///< the lowest of a word is applied first
    std::uint32_t id = 0;    ///< of the token that the pair becomes
  };

  /// A table for `merges` pairs at most.
  explicit MergeTable(std::size_t merges);

  /// Adds a pair. Returns false, and changes nothing, if the table has it.
  bool insert(std::uint32_t left, std::uint32_t right, Merge merge);

  /// Null for a pair that is not merged.
  const Merge* find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return &slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // ids are smaller

  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge = {};
  };

  static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) { return (std::uint64_t{left} << 32U) | right; }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15U) >> shift_);
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  unsigned shift_ = 0;
};

/// Merges the bytes of a word to tokens. Keeps its memory from word to word; used by one thread at a time.
class WordMerger {
 public:
  /// The tokens of a word of at least one byte: always the pair with the lowest rank, the leftmost of equal ones.
  void merge(const MergeTable& merges, const std::array<std::uint32_t, 256>& ids_of_bytes, std::string_view word);

  /// Of the last word: how many tokens it has, and the id and the bytes of each.
  std::size_t size() const { return size_; }
  const std::uint32_t* ids() const { return ids_.data(); }
  const std::uint32_t* lengths() const { return lengths_.data(); }

  std::size_t memory_bytes() const {
    const std::size_t numbers = ids_.capacity() + lengths_.capacity() + next_.capacity() + previous_.capacity();
    return numbers * sizeof(std::uint32_t) + heap_.capacity() * sizeof(Candidate);
  }

 private:
  struct Candidate {
    std::uint32_t rank = 0;
    std::uint32_t at = 0;
    std::uint32_t id = 0;

    friend auto operator<=>(const Candidate&, const Candidate&) = default;  // the lowest comes first
  };

  void merge_short(const MergeTable& merges);
  void merge_long(const MergeTable& merges);
  void push(const MergeTable& merges, std::uint32_t left, std::uint32_t right);

  std::size_t size_ = 0;
  std::vector<std::uint32_t> ids_ = {};
  std::vector<std::uint32_t> lengths_ = {};
  // Of long words: the tokens are a list, and the candidates a heap.
  std::vector<std::uint32_t> next_ = {};
  std::vector<std::uint32_t> previous_ = {};
  std::vector<Candidate> heap_ = {};
};

}  // namespace libtrain::detail
