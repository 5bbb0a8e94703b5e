#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <libtrain/text/tokenizer.hpp>

namespace libtrain {

struct TrainTokenizerOptions {
  /// All tokens: the special ones, the 256 bytes and the merged ones. There are fewer if the texts are too short.
  std::size_t vocabulary_size = 30000;

  /// A pair that occurs less often in all texts together is not merged.
  std::uint64_t min_frequency = 2;

  /// Take the first ids, in this order.
  std::vector<std::string> special_tokens = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};

  /// Whether the first word of a text is treated as if a space preceded it.
  bool add_prefix_space = false;

  int threads = 1;  ///< that count words
};

/// Learns the merges of a byte-level BPE tokenizer from texts: time and again, the most frequent pair of neighbours
/// within words becomes a token (Sennrich et al., 2016, algorithm 1); of equally frequent pairs, the one with the lower
/// ids. Vocabulary and merges equal those of BpeTrainer in Hugging Face's `tokenizers` with ByteLevel's alphabet as
/// initial alphabet, for texts in any order.
///
/// Used by one thread at a time.
class TokenizerTrainer {
 public:
  /// Throws UsageError for special tokens that are empty or equal, or not UTF-8, a vocabulary without room for them and
  /// the bytes, or fewer than one thread.
  explicit TokenizerTrainer(TrainTokenizerOptions options);
  TokenizerTrainer(TokenizerTrainer&&) noexcept;
  TokenizerTrainer& operator=(TokenizerTrainer&&) noexcept;
  ~TokenizerTrainer();

  /// Counts the words of texts, which are not needed any more afterwards. Special tokens in them count as text.
  void add(std::span<const std::string> texts);

  /// How many different words there are so far.
  std::size_t words() const;

  /// The tokenizer for all texts that were added. With <s> and </s> among the special tokens it puts them around texts
  /// as RoBERTa's does; <mask> takes the space before it along.
  Tokenizer train() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace libtrain
