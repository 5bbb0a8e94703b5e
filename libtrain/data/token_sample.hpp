#pragma once

#include <cstdint>
#include <vector>

namespace libtrain::data {

/// A text as token ids, and what is to be learned of it.
struct TokenSample {
  std::vector<std::int64_t> ids = {};
  std::int64_t label = 0;  ///< the number of its class
  /// In place of `label`: a real number, or of each class whether the text has it, 1 or 0. All texts of a batch have
  /// equally many.
  std::vector<float> targets = {};
  /// For masked language modelling, of each token: the id to be predicted, or kNoTokenLabel. See mask_tokens().
  std::vector<std::int64_t> token_labels = {};
};

/// The label of a token that is not to be predicted: the default ignore_index of torch's cross_entropy_loss.
inline constexpr std::int64_t kNoTokenLabel = -100;

}  // namespace libtrain::data
