#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/data/token_sample.hpp>

namespace libtrain::data {

/// Texts of different lengths, padded to the length of the longest.
struct TokenBatch {
  at::Tensor ids;             ///< int64 [B, T]
  at::Tensor attention_mask;  ///< bool [B, T]: true for tokens, false for padding
  at::Tensor labels;          ///< int64 [B]; of texts with K targets these, float32 [B, K]
  at::Tensor token_labels;    ///< int64 [B, T], kNoTokenLabel for padding; undefined if the texts have none
};

/// T is the length of the longest text, rounded up to a multiple of `multiple_of`. Without texts T is 0, and the batch
/// has labels int64 [0] and no token_labels, whatever other batches have. Throws UsageError if `multiple_of` is below
/// 1, for texts with different numbers of targets, and for some with token labels and some without, or with another
/// number of them than of ids.
TokenBatch pad_tokens(const std::vector<TokenSample>& texts, std::int64_t pad_id, std::int64_t multiple_of = 1);

/// Concatenated texts, without padding.
struct PackedTokens {
  at::Tensor ids;  ///< int64 [N] for N tokens
  /// int64 [B + 1]: text b has the tokens offsets[b] to offsets[b + 1] - 1. Stays on the CPU, where attention is
  /// planned.
  at::Tensor offsets;
  at::Tensor labels;        ///< int64 [B]; of texts with K targets these, float32 [B, K]
  at::Tensor token_labels;  ///< int64 [N]; undefined if the texts have none
};

/// Without texts as pad_tokens(). Throws UsageError as it does for texts that differ in what they have.
PackedTokens pack_tokens(const std::vector<TokenSample>& texts);

template <typename Visit>
void visit_tensors(TokenBatch& batch, const Visit& visit) {
  visit(batch.ids);
  visit(batch.attention_mask);
  visit(batch.labels);
  visit(batch.token_labels);
}

template <typename Visit>
void visit_tensors(PackedTokens& batch, const Visit& visit) {
  visit(batch.ids);
  visit(batch.labels);
  visit(batch.token_labels);
}

}  // namespace libtrain::data
