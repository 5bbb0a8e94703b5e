#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <libtrain/data/indexed_dataset.hpp>
#include <libtrain/data/token_sample.hpp>

namespace libtrain::data {

/// Masked language modelling (Devlin et al., "BERT", NAACL 2019, section 3.1), anew in each epoch as in RoBERTa (Liu et
/// al., 2019).
struct MaskingOptions {
  std::int64_t mask_id = 0;                 ///< the token that stands for chosen ones
  std::int64_t vocabulary_size = 0;         ///< random tokens are below it
  std::vector<std::int64_t> special_ids{};  ///< tokens that are neither chosen nor drawn; `mask_id` always is one
  double probability = 0.15;                ///< with which a token is chosen, each for itself
  double masked = 0.8;                      ///< share of the chosen tokens that become the mask
  double random = 0.1;                      ///< share that become a random token; the others stay
};

/// Chooses tokens of a text, changes `ids` at their places, and returns their former ids: kNoTokenLabel for all other
/// tokens. If chance chooses none, one is chosen, so that no text is without a loss, unless `probability` is 0; a text
/// of special tokens alone has none. Depends on the ids, the options and `random` alone: with the random numbers of a
/// sample, neither on its batch nor on its rank. Throws UsageError for shares that are not in [0, 1] or add up to more,
/// and for a vocabulary without a token that is not special.
std::vector<std::int64_t> mask_tokens(std::vector<std::int64_t>& ids, const MaskingOptions& options,
                                      SampleRandom& random);

/// The texts of a data set with masks, and token_labels.
class MaskedTexts : public DatasetOf<TokenSample> {
 public:
  /// The data set must outlive it. Throws as mask_tokens() does.
  MaskedTexts(const DatasetOf<TokenSample>& texts, MaskingOptions options);

  std::uint64_t size() const override { return texts_.size(); }
  TokenSample get(std::uint64_t index, SampleRandom& random) const override;
  SampleOrigin origin(std::uint64_t index) const override { return texts_.origin(index); }
  DatasetIdentity identity() const override { return texts_.identity(); }
  std::vector<std::uint64_t> blocks() const override { return texts_.blocks(); }
  std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& order) const override { return texts_.read_ahead(order); }

 private:
  const DatasetOf<TokenSample>& texts_;
  const MaskingOptions options_;
};

}  // namespace libtrain::data
