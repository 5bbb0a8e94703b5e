#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain {

namespace detail {
class TokenizerCore;
}

/// Bytes `begin` to `end - 1` of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  friend bool operator==(const TextRange&, const TextRange&) = default;
};

struct EncodeOptions {
  /// The most ids of an encoding, special tokens included. Unset: what tokenizer.json says under `truncation`, or no
  /// limit.
  std::optional<std::size_t> max_tokens = {};

  /// Whether the special tokens around a text are added, such as <s> and </s>. Those that the text spells are
  /// recognised in any case.
  bool special_tokens = true;

  /// Whether Encoding::offsets is filled.
  bool offsets = false;
};

/// A text, or a pair of texts, as token ids.
struct Encoding {
  std::vector<std::int64_t> ids = {};

  /// The bytes of the text that each id stands for; {0, 0} for special tokens around the texts. A character whose bytes
  /// belong to several tokens is in the range of each. Where the tokenizer trims offsets, as RoBERTa's does, spaces at
  /// both ends are left out. Empty unless EncodeOptions::offsets is set.
  std::vector<TextRange> offsets = {};

  /// Of a pair: the ids from this index on belong to the second text, whose bytes `offsets` then refers to. Of a single
  /// text: ids.size().
  std::size_t second_begin = 0;

  bool truncated = false;
};

struct DecodeOptions {
  bool special_tokens = false;  ///< whether the text of special tokens is included
};

/// The ids of tokens with a known role, where the vocabulary has them: <s>, <pad>, </s>, <unk> and <mask>; without <s>,
/// <|endoftext|> is the first, the third and the fourth, as in GPT-2.
struct SpecialTokens {
  std::optional<std::int64_t> bos = {};
  std::optional<std::int64_t> pad = {};
  std::optional<std::int64_t> eos = {};
  std::optional<std::int64_t> unknown = {};
  std::optional<std::int64_t> mask = {};
};

/// A byte-level BPE tokenizer, as RoBERTa and GPT-2 use it (Radford et al., 2019, section 2.2; Sennrich et al., 2016):
/// a text is split into words by GPT-2's pattern, and the bytes of a word are merged in the order that was learnt. Ids
/// and offsets equal those of Hugging Face's `tokenizers`.
///
/// Texts are UTF-8. In other bytes, each longest part of a sequence that could have become a character, and each other
/// byte, counts as U+FFFD, as with Python's errors="replace"; its offsets are those of the replaced bytes.
///
/// Copies share their tables and caches. Any thread may call const functions, several at once.
class Tokenizer {
 public:
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerCore> core);

  /// Encodes a text. A text of too many tokens loses the last ones. Throws UsageError if `max_tokens` is below the
  /// number of special tokens, or the text has 2^31 bytes or more.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// Encodes two texts, for RoBERTa <s> first </s></s> second </s>. If there are too many tokens, the longer text loses
  /// its last ones until both have the same length, then both do. Throws as encode.
  Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options = {}) const;

  /// The text of the ids, as UTF-8: bytes that are none, such as those of a character that is cut, become U+FFFD by the
  /// rule for texts. Throws UsageError for an id that the vocabulary does not have.
  std::string decode(std::span<const std::int64_t> ids, const DecodeOptions& options = {}) const;

  /// One more than the highest id: the rows of an embedding.
  std::int64_t vocabulary_size() const;

  const SpecialTokens& special_tokens() const;

  /// The ids of all special tokens, rising: those above, and others that tokenizer.json marks so.
  std::vector<std::int64_t> special_ids() const;

  /// The most ids of an encoding where EncodeOptions does not say; unset: no limit.
  std::optional<std::size_t> max_tokens() const;

  /// The token of an id as vocab.json spells it: a letter for each byte, Ġ for the space. Throws UsageError for an id
  /// that the vocabulary does not have.
  const std::string& token(std::int64_t id) const;

  /// The id of a token that is spelled as in vocab.json.
  std::optional<std::int64_t> find(std::string_view token) const;

  /// For the library's own functions.
  const detail::TokenizerCore& core() const { return *core_; }

 private:
  std::shared_ptr<const detail::TokenizerCore> core_;
};

/// Reads a tokenizer.json, or from a folder tokenizer.json or else vocab.json and merges.txt, which are taken for
/// RoBERTa's if the vocabulary has <s> and </s>, and otherwise for GPT-2's. What a tokenizer.json asks for is done or
/// refused, never ignored (docs/tokenizers.md). Throws EnvironmentError, with the file and the place, for a file that
/// is missing, damaged, or describes another kind of tokenizer, and for a folder whose other files, such as
/// tokenizer_config.json, name other tokens or say otherwise where a text gets a space in front.
Tokenizer read_tokenizer(const std::string& path);

/// Writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json to a folder, which is made if it is missing;
/// each file is complete or absent. `tokenizers` and `transformers` read them. `max_tokens` takes the place of the
/// tokenizer's: the length of the texts that a network has learnt from. Throws EnvironmentError if they cannot be
/// written.
void write_tokenizer(const Tokenizer& tokenizer, const std::string& folder,
                     const std::optional<std::size_t>& max_tokens = {});

}  // namespace libtrain
