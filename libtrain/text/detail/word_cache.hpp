#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace libtrain::detail {

/// The tokens of words that were encoded lately: a table of fixed size (2 MiB), in which a word replaces the one before
/// it in its place. Longer words, and those of more tokens, are not kept. Used by one thread at a time.
class WordCache {
 public:
  static constexpr std::size_t kBytes = 24;
  static constexpr std::size_t kTokens = 7;

  /// The bytes of a word, then zeros. Words with zeros at the end differ in their length.
  struct Key {
    std::array<std::uint64_t, 3> words = {};
    friend bool operator==(const Key&, const Key&) = default;
  };

  /// 64 bytes: one line of the processor's cache.
  struct alignas(64) Entry {
    Key key = {};
    std::array<std::uint32_t, kTokens> ids = {};
    std::array<std::uint8_t, kTokens> lengths = {};  ///< bytes of each token
    std::uint8_t size = 0;                           ///< tokens
    std::uint8_t bytes = 0;                          ///< of the word; 0: the entry is empty
  };
  static_assert(sizeof(Entry) == 64);

  WordCache() : entries_(new Entry[kEntries]) {}

  /// The key of a word of at most kBytes bytes. `readable`: how many bytes may be read from its beginning on.
  static Key key_of(std::string_view word, std::size_t readable) {
    Key key;
    if (readable < kBytes) {
      std::memcpy(key.words.data(), word.data(), word.size());
      return key;
    }
    std::memcpy(key.words.data(), word.data(), kBytes);
    const std::size_t whole = word.size() / 8;
    const std::size_t rest = word.size() % 8;
    if (whole < 3) key.words[whole] &= (std::uint64_t{1} << (8 * rest)) - 1;  // little-endian
    for (std::size_t i = whole + 1; i < 3; ++i) key.words[i] = 0;
    return key;
  }

  /// The place of a word: its entry, or one that it may replace.
  Entry& entry_of(const Key& key, std::size_t bytes) {
    std::uint64_t hash = key.words[0] * 0x9e3779b97f4a7c15U;
    hash = (hash ^ (hash >> 32U) ^ key.words[1]) * 0xbf58476d1ce4e5b9U;
    hash = (hash ^ (hash >> 32U) ^ key.words[2] ^ bytes) * 0x94d049bb133111ebU;
    return entries_[static_cast<std::size_t>(hash >> (64U - kBits))];
  }

 private:
  static constexpr unsigned kBits = 15;
  static constexpr std::size_t kEntries = std::size_t{1} << kBits;

  std::unique_ptr<Entry[]> entries_;
};

}  // namespace libtrain::detail
