#include <libtrain/text/detail/learn_merges.hpp>

#include <algorithm>
#include <array>
#include <queue>
#include <string>
#include <unordered_map>

#include <libtrain/text/detail/byte_alphabet.hpp>

namespace libtrain::detail {

namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const std::uint64_t key = (std::uint64_t{pair.first} << 32U) | pair.second;
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15U) >> 20U);
  }
};

// A word as tokens: `size` of all tokens from `begin` on.
struct LearntWord {
  std::size_t begin = 0;
  std::size_t size = 0;
  std::int64_t count = 0;
};

// A pair with the words that may have it. The count may have fallen since.
struct Candidate {
  std::int64_t count = 0;
  Pair pair = {};
  std::size_t places = 0;  // its index

  // The queue gives the most frequent pair, of several the one with the lowest ids.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

// Counts are kept as BpeTrainer keeps them, for the same merges. Two things follow that are not obvious: the count of a
// pair stays as it is when the pair is merged, and a pair that arises again, because two merges made the same token, is
// a second candidate with places of its own.
class MergeLearner {
 public:
  MergeLearner(const std::vector<CountedWord>& words, TokenizerDefinition& definition) : definition_(definition) {
    for (std::size_t id = 0; id < definition_.tokens.size(); ++id) {
      ids_.emplace(definition_.tokens[id], static_cast<std::uint32_t>(id));
    }
    read(words);
    count_pairs();
  }

  void learn(std::size_t vocabulary_size, std::int64_t min_frequency) {
    while (ids_.size() < vocabulary_size && !queue_.empty()) {
      Candidate best = queue_.top();
      queue_.pop();
      if (const std::int64_t count = counts_[best.pair]; count != best.count) {
        best.count = count;
        queue_.push(best);
        continue;
      }
      if (best.count < std::max<std::int64_t>(min_frequency, 1)) break;
      merge(best);
    }
    keep_last_of_equal_merges();
  }

 private:
  using Places = std::vector<std::uint32_t>;  // words

  void read(const std::vector<CountedWord>& words) {
    std::array<std::uint32_t, 256> ids_of_bytes{};
    for (unsigned byte = 0; byte < 256; ++byte) {
      ids_of_bytes[byte] = ids_.at(letter_of_byte(static_cast<std::uint8_t>(byte)));
    }
    words_.reserve(words.size());
    for (const auto& [word, count] : words) {
      words_.push_back({.begin = tokens_.size(), .size = word.size(), .count = count});
      for (const char byte : word) tokens_.push_back(ids_of_bytes[static_cast<unsigned char>(byte)]);
    }
  }

  void count_pairs() {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const LearntWord& word = words_[i];
      for (std::size_t at = word.begin; at + 1 < word.begin + word.size; ++at) {
        const Pair pair{tokens_[at], tokens_[at + 1]};
        counts_[pair] += word.count;
        add_place(pair, i);
      }
    }
    queue_new_pairs();
  }

  void add_place(const Pair& pair, std::size_t word) {
    Places& places = new_places_[pair];
    const auto number = static_cast<std::uint32_t>(word);
    if (places.empty() || places.back() != number) places.push_back(number);
  }

  void queue_new_pairs() {
    for (auto& [pair, places] : new_places_) {
      const std::int64_t count = counts_[pair];
      if (count <= 0) continue;
      queue_.push({.count = count, .pair = pair, .places = places_.size()});
      places_.push_back(std::move(places));
    }
    new_places_.clear();
  }

  void merge(const Candidate& best) {
    const auto& [left, right] = best.pair;
    std::string token = definition_.tokens[left] + definition_.tokens[right];
    const auto [entry, is_new] = ids_.emplace(token, static_cast<std::uint32_t>(definition_.tokens.size()));
    if (is_new) definition_.tokens.push_back(std::move(token));
    definition_.merges.push_back(best.pair);
    for (const std::uint32_t word : Places(std::move(places_[best.places]))) merge_in(word, best.pair, entry->second);
    queue_new_pairs();
  }

  void change(const Pair& pair, std::int64_t by, std::size_t word) {
    counts_[pair] += by;
    if (by > 0) add_place(pair, word);
  }

  void merge_in(std::size_t number, const Pair& pair, std::uint32_t merged) {
    LearntWord& word = words_[number];
    std::uint32_t* const tokens = tokens_.data() + word.begin;
    std::size_t kept = 0;  // tokens that are final
    for (std::size_t at = 0; at < word.size; ++at) {
      if (at + 1 == word.size || tokens[at] != pair.first || tokens[at + 1] != pair.second) {
        tokens[kept++] = tokens[at];
        continue;
      }
      if (kept > 0) {
        change({tokens[kept - 1], pair.first}, -word.count, number);
        change({tokens[kept - 1], merged}, word.count, number);
      }
      ++at;
      if (at + 1 < word.size) {
        change({pair.second, tokens[at + 1]}, -word.count, number);
        change({merged, tokens[at + 1]}, word.count, number);
      }
      tokens[kept++] = merged;
    }
    word.size = kept;
  }

  void keep_last_of_equal_merges() {
    std::unordered_map<Pair, std::size_t, PairHash> last;
    for (std::size_t i = 0; i < definition_.merges.size(); ++i) last[definition_.merges[i]] = i;
    std::size_t at = 0;
    std::erase_if(definition_.merges, [&](const Pair& pair) { return last[pair] != at++; });
  }

  TokenizerDefinition& definition_;
  std::unordered_map<std::string, std::uint32_t> ids_ = {};
  std::vector<std::uint32_t> tokens_ = {};  // of all words
  std::vector<LearntWord> words_ = {};
  std::unordered_map<Pair, std::int64_t, PairHash> counts_ = {};
  std::unordered_map<Pair, Places, PairHash> new_places_ = {};
  std::vector<Places> places_ = {};
  std::priority_queue<Candidate> queue_ = {};
};

}  // namespace

void learn_merges(const std::vector<CountedWord>& words, std::size_t vocabulary_size, std::uint64_t min_frequency,
                  TokenizerDefinition& definition) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62U;
  MergeLearner(words, definition).learn(vocabulary_size, static_cast<std::int64_t>(std::min(min_frequency, kMost)));
}

}  // namespace libtrain::detail
