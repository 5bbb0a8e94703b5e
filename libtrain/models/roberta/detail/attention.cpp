#include <libtrain/models/roberta/detail/attention.hpp>

#include <map>
#include <numeric>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>

namespace libtrain::models::detail {

namespace {

// Texts with equally many keys and equally many queries, which one call attends to.
struct EqualTexts {
  std::int64_t keys;
  std::int64_t queries;
  std::vector<std::int64_t> key_rows = {};
  std::vector<std::int64_t> query_rows = {};
};

std::vector<EqualTexts> equal_texts(const TextRows& rows) {
  std::map<std::pair<std::int64_t, std::int64_t>, EqualTexts> groups;
  std::int64_t key = 0, query = 0;
  for (std::size_t text = 0; text < rows.keys.size(); ++text) {
    const auto keys = rows.keys[text], queries = rows.queries[text];
    auto& group = groups.try_emplace({keys, queries}, EqualTexts{keys, queries}).first->second;
    for (std::int64_t k = 0; k < keys; ++k) group.key_rows.push_back(key++);
    for (std::int64_t k = 0; k < queries; ++k) group.query_rows.push_back(query++);
  }
  std::vector<EqualTexts> result;
  for (auto& [lengths, group] : groups) {
    if (group.queries > 0) result.push_back(std::move(group));
  }
  return result;
}

at::Tensor index_tensor(const std::vector<std::int64_t>& rows, c10::Device device) {
  return at::tensor(rows, at::kLong).to(device);
}

// [texts * tokens, heads * width] as [texts, heads, tokens, width].
at::Tensor by_head(const at::Tensor& packed, std::int64_t tokens, std::int64_t heads) {
  return packed.view({-1, tokens, heads, packed.size(1) / heads}).transpose(1, 2);
}

at::Tensor attend_equal(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                        const EqualTexts& texts, std::int64_t heads, double dropout) {
  const auto mixed =
      at::scaled_dot_product_attention(by_head(queries, texts.queries, heads), by_head(keys, texts.keys, heads),
                                       by_head(values, texts.keys, heads), {}, dropout);
  return mixed.transpose(1, 2).reshape({queries.size(0), queries.size(1)});
}

}  // namespace

at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, const TextRows& rows,
                  std::int64_t heads, const Dropout& dropout) {
  const auto groups = equal_texts(rows);
  if (groups.size() == 1 && std::ssize(groups.front().key_rows) == keys.size(0)) {
    return attend_equal(queries, keys, values, groups.front(), heads, dropout.probability);
  }
  std::vector<at::Tensor> mixed;
  std::vector<std::int64_t> order;
  for (const auto& group : groups) {
    const auto key_rows = index_tensor(group.key_rows, keys.device());
    const auto query_rows = index_tensor(group.query_rows, keys.device());
    mixed.push_back(attend_equal(queries.index_select(0, query_rows), keys.index_select(0, key_rows),
                                 values.index_select(0, key_rows), group, heads, dropout.probability));
    order.insert(order.end(), group.query_rows.begin(), group.query_rows.end());
  }
  if (mixed.empty()) return at::empty_like(queries);
  std::vector<std::int64_t> places(order.size());
  for (std::size_t k = 0; k < order.size(); ++k)
    places[static_cast<std::size_t>(order[k])] = static_cast<std::int64_t>(k);
  return at::cat(mixed).index_select(0, index_tensor(places, keys.device()));
}

}  // namespace libtrain::models::detail
