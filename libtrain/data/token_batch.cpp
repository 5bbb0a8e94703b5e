#include <libtrain/data/token_batch.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

at::Tensor labels_of(const std::vector<TokenSample>& texts) {
  const auto count = texts.empty() ? std::size_t{0} : texts.front().targets.size();
  for (const auto& one : texts) {
    if (one.targets.size() == count) continue;
    throw UsageError(text("A batch has texts with ", count, " and with ", one.targets.size(),
                          " targets. Give all texts of a data set equally many."));
  }
  if (count > 0) {
    auto targets = at::empty({std::ssize(texts), static_cast<std::int64_t>(count)}, at::kFloat);
    auto* to = targets.mutable_data_ptr<float>();
    for (const auto& one : texts) to = std::copy(one.targets.begin(), one.targets.end(), to);
    return targets;
  }
  auto labels = at::empty({std::ssize(texts)}, at::kLong);
  std::transform(texts.begin(), texts.end(), labels.mutable_data_ptr<std::int64_t>(),
                 [](const TokenSample& text) { return text.label; });
  return labels;
}

bool have_token_labels(const std::vector<TokenSample>& texts) {
  const bool have = std::ranges::any_of(texts, [](const auto& one) { return !one.token_labels.empty(); });
  for (const auto& one : texts) {
    if (!have || one.token_labels.size() == one.ids.size()) continue;
    throw UsageError(text("A text has ", one.ids.size(), " ids and ", one.token_labels.size(),
                          " token labels. Give each text of a data set one for each id, or none."));
  }
  return have;
}

}  // namespace

TokenBatch pad_tokens(const std::vector<TokenSample>& texts, std::int64_t pad_id, std::int64_t multiple_of) {
  if (multiple_of < 1) throw UsageError(text("multiple_of is ", multiple_of, ". It must be at least 1."));
  std::size_t longest = 0;
  for (const auto& one : texts) longest = std::max(longest, one.ids.size());
  const std::int64_t length = (static_cast<std::int64_t>(longest) + multiple_of - 1) / multiple_of * multiple_of;
  TokenBatch batch{at::full({std::ssize(texts), length}, pad_id, at::kLong),
                   at::zeros({std::ssize(texts), length}, at::kBool), labels_of(texts), at::Tensor{}};
  auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
  auto* mask = batch.attention_mask.mutable_data_ptr<bool>();
  for (const auto& one : texts) {
    std::copy(one.ids.begin(), one.ids.end(), ids);
    std::fill_n(mask, one.ids.size(), true);
    ids += length;
    mask += length;
  }
  if (!have_token_labels(texts)) return batch;
  batch.token_labels = at::full({std::ssize(texts), length}, kNoTokenLabel, at::kLong);
  auto* token_labels = batch.token_labels.mutable_data_ptr<std::int64_t>();
  for (const auto& one : texts) {
    std::copy(one.token_labels.begin(), one.token_labels.end(), token_labels);
    token_labels += length;
  }
  return batch;
}

PackedTokens pack_tokens(const std::vector<TokenSample>& texts) {
  std::int64_t tokens = 0;
  for (const auto& one : texts) tokens += std::ssize(one.ids);
  PackedTokens batch{at::empty({tokens}, at::kLong), at::zeros({std::ssize(texts) + 1}, at::kLong), labels_of(texts),
                     at::Tensor{}};
  auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
  auto* offset = batch.offsets.mutable_data_ptr<std::int64_t>();
  for (const auto& one : texts) {
    const auto length = std::ssize(one.ids);
    ids = std::copy(one.ids.begin(), one.ids.end(), ids);
    offset[1] = offset[0] + length;
    ++offset;
  }
  if (!have_token_labels(texts)) return batch;
  batch.token_labels = at::empty({tokens}, at::kLong);
  auto* token_labels = batch.token_labels.mutable_data_ptr<std::int64_t>();
  for (const auto& one : texts) {
    token_labels = std::copy(one.token_labels.begin(), one.token_labels.end(), token_labels);
  }
  return batch;
}

}  // namespace libtrain::data
