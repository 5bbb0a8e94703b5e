#include <libtrain/data/token_masking.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

bool is_special(std::int64_t id, const MaskingOptions& options) {
  return id == options.mask_id || std::ranges::find(options.special_ids, id) != options.special_ids.end();
}

// Negated, so that NaN is refused.
bool is_share(double value) {
  return value >= 0 && value <= 1;
}

void check_masking(const MaskingOptions& options) {
  if (!is_share(options.probability) || !is_share(options.masked) || !is_share(options.random) ||
      options.masked + options.random > 1 + 1e-9) {
    throw UsageError(text("Tokens are chosen with a probability of ", options.probability, ", of which ",
                          options.masked, " are masked and ", options.random,
                          " replaced. Give numbers from 0 to 1, of which the last two add up to at most 1."));
  }
  const auto size = options.vocabulary_size;
  std::vector<std::int64_t> special = options.special_ids;
  special.push_back(options.mask_id);
  std::ranges::sort(special);
  special.erase(std::unique(special.begin(), special.end()), special.end());
  const auto within = std::ranges::count_if(special, [&](std::int64_t id) { return id >= 0 && id < size; });
  if (size <= within || size > std::numeric_limits<int>::max()) {
    throw UsageError(text("Random tokens are drawn from a vocabulary of ", size, " tokens, of which ", within,
                          " are special. Give the size of the tokenizer's vocabulary."));
  }
}

std::int64_t ordinary_token(const MaskingOptions& options, SampleRandom& random) {
  for (;;) {
    const std::int64_t id = random.integer(0, static_cast<int>(options.vocabulary_size - 1));
    if (!is_special(id, options)) return id;
  }
}

std::vector<std::int64_t> masked_labels(std::vector<std::int64_t>& ids, const MaskingOptions& options,
                                        SampleRandom& random) {
  std::vector<std::int64_t> labels(ids.size(), kNoTokenLabel);
  std::vector<std::size_t> ordinary;
  bool is_any_chosen = false;
  for (std::size_t place = 0; place < ids.size(); ++place) {
    if (is_special(ids[place], options)) continue;
    ordinary.push_back(place);
    if (random.uniform() >= options.probability) continue;
    labels[place] = ids[place];
    is_any_chosen = true;
  }
  if (!is_any_chosen && !ordinary.empty() && options.probability > 0) {
    const auto chosen = ordinary[static_cast<std::size_t>(random.integer(0, static_cast<int>(ordinary.size() - 1)))];
    labels[chosen] = ids[chosen];
  }
  for (std::size_t place = 0; place < ids.size(); ++place) {
    if (labels[place] == kNoTokenLabel) continue;
    const double share = random.uniform();
    if (share < options.masked) {
      ids[place] = options.mask_id;
    } else if (share < options.masked + options.random) {
      ids[place] = ordinary_token(options, random);
    }
  }
  return labels;
}

}  // namespace

std::vector<std::int64_t> mask_tokens(std::vector<std::int64_t>& ids, const MaskingOptions& options,
                                      SampleRandom& random) {
  check_masking(options);
  return masked_labels(ids, options, random);
}

MaskedTexts::MaskedTexts(const DatasetOf<TokenSample>& texts, MaskingOptions options)
    : texts_(texts), options_(std::move(options)) {
  check_masking(options_);
}

TokenSample MaskedTexts::get(std::uint64_t index, SampleRandom& random) const {
  TokenSample sample = texts_.get(index, random);
  sample.token_labels = masked_labels(sample.ids, options_, random);
  return sample;
}

}  // namespace libtrain::data
