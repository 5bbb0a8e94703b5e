#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/indexed_dataset.hpp>
#include <libtrain/data/labelled_texts.hpp>
#include <libtrain/data/token_sample.hpp>

namespace libtrain::data {

/// The token ids of a text, or of a pair of texts, with special tokens and truncated if that is wanted. Any thread may
/// call it, several at once.
using TextEncoder =
    std::function<std::vector<std::int64_t>(std::string_view text, std::optional<std::string_view> second_text)>;

struct TokenizedTextsOptions {
  /// The largest number of tokens that the model takes: a text with more is bad. Encoders that truncate make none.
  std::optional<std::uint64_t> maximum_tokens = {};
  BadTexts bad_texts = BadTexts::refuse;  ///< of texts that are too long, or without tokens
  int threads = 2;                        ///< that encode
};

/// Labelled texts as tokens, for a DataLoaderOf with pad_tokens() or pack_tokens(). All texts are encoded at
/// construction and held with 4 bytes per token.
///
///     const lt::data::TokenizedTexts set(lt::data::read_labelled_texts({"train.tsv"}), encode);
///     lt::data::DataLoaderOf loader(set, lt::data::pack_tokens, {.max_tokens = 4096, .lengths = set.lengths()},
///                                   context.shard());
///
/// Of TextLabels::several_classes a sample has one target for each class, of TextLabels::numbers one.
class TokenizedTexts : public DatasetOf<TokenSample> {
 public:
  /// Throws EnvironmentError, which names file and line, for a text that is bad, and if none is left; UsageError
  /// without an encoder, for an id outside [0, 2^32), and for less than one thread; and what `encode` throws.
  TokenizedTexts(LabelledTexts texts, const TextEncoder& encode, const TokenizedTextsOptions& options = {});

  std::uint64_t size() const override { return rows_.size(); }
  TokenSample get(std::uint64_t index, SampleRandom& random) const override;
  SampleOrigin origin(std::uint64_t index) const override { return texts_.origin(row(index)); }

  /// Those of texts and labels, with a checksum of the tokens, which other vocabularies change.
  DatasetIdentity identity() const override;

  /// The number of tokens of each text, for LoaderOptions::lengths.
  std::vector<std::uint32_t> lengths() const;

  /// The text and the labels of sample `index` are those of the row `row(index)` of `texts()`.
  const LabelledTexts& texts() const { return texts_; }
  std::uint64_t row(std::uint64_t index) const { return rows_.at(index); }

  /// The number of texts that were left out here: too long, or without tokens.
  std::uint64_t left_out() const { return texts_.size() - size(); }

  /// As LabelledTexts::first_left_out().
  const std::string& first_left_out() const { return first_left_out_; }

 private:
  LabelledTexts texts_;
  std::vector<std::uint32_t> ids_;
  std::vector<std::uint64_t> ends_;  // of each sample in ids_
  std::vector<std::uint32_t> rows_;
  std::string first_left_out_;
};

/// The group of each text by its length, for LoaderOptions::groups: batches that are padded to their longest text then
/// have little padding. The bounds of the groups are 2^(i / factor) tokens for i from 1 on, so that lengths of a group
/// differ by less than that ratio: 1.41 for a factor of 2. Throws UsageError for a factor outside [1, 7].
std::vector<std::uint8_t> length_groups(std::span<const std::uint32_t> lengths, int factor = 2);

}  // namespace libtrain::data
