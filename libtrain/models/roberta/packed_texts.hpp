#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace libtrain::models {

/// Texts as token ids, one after another without padding, so that a batch costs what its tokens cost.
struct PackedTexts {
  at::Tensor ids;                          ///< int64 [T]
  std::vector<std::int64_t> lengths = {};  ///< tokens of each text, at least 1; their sum is T

  std::int64_t size() const { return static_cast<std::int64_t>(lengths.size()); }

  /// The number of each text's first token, int64 [size()] on the CPU.
  at::Tensor first_tokens() const;
};

/// Of `offsets`, int64 [B + 1]: text b has the tokens offsets[b] to offsets[b + 1] - 1, as in data::PackedTokens. They
/// are read on the host: keep them on the CPU. Throws std::invalid_argument for offsets that do not rise from 0 to T,
/// each above the one before it.
PackedTexts packed_texts(const at::Tensor& ids, const at::Tensor& offsets);

/// Of a padded batch, without its padding. `ids` int64 [B, S]; `mask` [B, S] of any type, not 0 for tokens, or
/// undefined if there is no padding; `pad_id`: RobertaOptions::pad_id. Padding may be anywhere. On the left, too, a
/// classifier reads a text's first token, where transformers read the batch's first column. A mask on a GPU is read on
/// the host. Throws std::invalid_argument for other shapes, and for a masked id that is not `pad_id`: transformers
/// count such a token in the positions of those after it.
PackedTexts unpadded_texts(const at::Tensor& ids, const at::Tensor& mask = {}, std::int64_t pad_id = 1);

}  // namespace libtrain::models
