// On the CPU, in float32 and bfloat16, heads of texts are computed one by one, threads share them, and no probability
// is kept: LibTorch's operator has no such loops with dropout, and would be called for each length. Elsewhere texts of
// equal length share one call of it.

#include <libtrain/models/roberta/detail/attention.hpp>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <libtrain/base/splitmix.hpp>
#include <libtrain/models/roberta/detail/attention_kernels.hpp>
#include <libtrain/models/roberta/detail/layer_operators.hpp>

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

at::Tensor attend_by_length(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                            const TextRows& rows, std::int64_t heads, double dropout) {
  const auto groups = equal_texts(rows);
  if (groups.size() == 1 && std::ssize(groups.front().key_rows) == keys.size(0)) {
    return attend_equal(queries, keys, values, groups.front(), heads, dropout);
  }
  std::vector<at::Tensor> mixed;
  std::vector<std::int64_t> order;
  for (const auto& group : groups) {
    const auto key_rows = index_tensor(group.key_rows, keys.device());
    const auto query_rows = index_tensor(group.query_rows, keys.device());
    mixed.push_back(attend_equal(queries.index_select(0, query_rows), keys.index_select(0, key_rows),
                                 values.index_select(0, key_rows), group, heads, dropout));
    order.insert(order.end(), group.query_rows.begin(), group.query_rows.end());
  }
  if (mixed.empty()) return queries + 0 * (keys.sum() + values.sum());  // so that all have a gradient
  std::vector<std::int64_t> places(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    places[static_cast<std::size_t>(order[k])] = static_cast<std::int64_t>(k);
  }
  return at::cat(mixed).index_select(0, index_tensor(places, keys.device()));
}

// Of flash attention's kernels.
bool has_gpu_kernel(const at::Tensor& queries, std::int64_t heads) {
  const auto width = queries.size(1) / heads;
  return queries.is_cuda() && queries.scalar_type() == at::kBFloat16 && width % 8 == 0 && width <= 256;
}

at::Tensor offsets_of(const std::vector<std::int64_t>& rows, c10::Device device) {
  std::vector<std::int32_t> offsets{0};
  for (const auto count : rows) offsets.push_back(offsets.back() + static_cast<std::int32_t>(count));
  return at::tensor(offsets, at::kInt).to(device);
}

at::Tensor attend_on_gpu(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                         const TextRows& rows, std::int64_t heads, double dropout) {
  const auto by_head = [&](const at::Tensor& packed) { return packed.view({packed.size(0), heads, -1}); };
  const auto mixed = at::_flash_attention_forward(
      by_head(queries), by_head(keys), by_head(values), offsets_of(rows.queries, queries.device()),
      offsets_of(rows.keys, queries.device()), *std::ranges::max_element(rows.queries),
      *std::ranges::max_element(rows.keys), dropout, /*is_causal=*/false, /*return_debug_mask=*/false);
  return std::get<0>(mixed).reshape({queries.size(0), queries.size(1)});
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls work(head of a text, the places of its first query and key in packed tensors, that of its first query in
// [heads, queries], scratch memory), which has scratch_of(queries, keys, width of a head) floats.
template <typename T, typename ScratchOf, typename Work>
void for_heads(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, const TextRows& rows,
               std::int64_t heads, const Dropout& dropout, const ScratchOf& scratch_of, const Work& work) {
  const auto width = queries.size(1) / heads, stride = queries.size(1);
  std::vector<std::int64_t> first_keys{0}, first_queries{0};
  std::int64_t scratch_size = 0;
  for (std::size_t text = 0; text < rows.keys.size(); ++text) {
    first_keys.push_back(first_keys.back() + rows.keys[text]);
    first_queries.push_back(first_queries.back() + rows.queries[text]);
    scratch_size = std::max(scratch_size, scratch_of(rows.queries[text], rows.keys[text], width));
  }
  const auto texts = rows.size();
  // A thread's share has all lengths of texts.
  at::parallel_for(0, heads * texts, 1, [&](std::int64_t begin, std::int64_t end) {
    auto scratch = at::empty({scratch_size}, at::kFloat);
    for (auto number = begin; number < end; ++number) {
      const auto head = number / texts;
      const auto text = static_cast<std::size_t>(number % texts);
      const auto query = first_queries[text] * stride + head * width;
      const auto key = first_keys[text] * stride + head * width;
      const auto seed = libtrain::detail::combine_keys(dropout.seed, static_cast<std::uint64_t>(number));
      work(AttentionHead<T>{.queries = queries.const_data_ptr<T>() + query,
                            .keys = keys.const_data_ptr<T>() + key,
                            .values = values.const_data_ptr<T>() + key,
                            .query_count = rows.queries[text],
                            .key_count = rows.keys[text],
                            .width = width,
                            .stride = stride,
                            .dropout = {dropout.probability, seed}},
           query, key, head * first_queries.back() + first_queries[text], scratch.mutable_data_ptr<float>());
    }
  });
}

struct PackedAttention : torch::autograd::Function<PackedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& queries_in, const at::Tensor& keys_in,
                            const at::Tensor& values_in, const TextRows& rows, std::int64_t heads,
                            const Dropout& dropout) {
    const auto queries = queries_in.contiguous(), keys = keys_in.contiguous(), values = values_in.contiguous();
    auto outputs = at::empty_like(queries);
    auto log_sums = at::empty({heads, queries.size(0)}, at::kFloat);
    with_type(queries, [&]<typename T>(T) {
      for_heads<T>(
          queries, keys, values, rows, heads, dropout,
          [](std::int64_t, std::int64_t key_count, std::int64_t width) { return attend_scratch(key_count, width); },
          [&](const AttentionHead<T>& head, std::int64_t place, std::int64_t, std::int64_t sum, float* scratch) {
            attend_head(head, outputs.mutable_data_ptr<T>() + place, log_sums.mutable_data_ptr<float>() + sum, scratch);
          });
    });
    context->save_for_backward({queries, keys, values, outputs, log_sums});
    context->saved_data["key_rows"] = rows.keys;
    context->saved_data["query_rows"] = rows.queries;
    context->saved_data["heads"] = heads;
    context->saved_data["probability"] = dropout.probability;
    context->saved_data["seed"] = static_cast<std::int64_t>(dropout.seed);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients_of_outputs) {
    require_first_derivative();
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const TextRows rows{data["key_rows"].toIntVector(), data["query_rows"].toIntVector()};
    const Dropout dropout{data["probability"].toDouble(), static_cast<std::uint64_t>(data["seed"].toInt())};
    const auto of_outputs = gradients_of_outputs[0].contiguous();
    auto to_queries = at::empty_like(saved[0]), to_keys = at::empty_like(saved[1]),
         to_values = at::empty_like(saved[2]);
    with_type(saved[0], [&]<typename T>(T) {
      for_heads<T>(
          saved[0], saved[1], saved[2], rows, data["heads"].toInt(), dropout, gradients_scratch,
          [&](const AttentionHead<T>& head, std::int64_t query, std::int64_t key, std::int64_t sum, float* scratch) {
            attention_gradients(head,
                                AttentionGradients<T>{.outputs = saved[3].const_data_ptr<T>() + query,
                                                      .of_outputs = of_outputs.const_data_ptr<T>() + query,
                                                      .log_sums = saved[4].const_data_ptr<float>() + sum,
                                                      .to_queries = to_queries.mutable_data_ptr<T>() + query,
                                                      .to_keys = to_keys.mutable_data_ptr<T>() + key,
                                                      .to_values = to_values.mutable_data_ptr<T>() + key},
                                scratch);
          });
    });
    return {to_queries, to_keys, to_values, {}, {}, {}};
  }
};

}  // namespace

at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, const TextRows& rows,
                  std::int64_t heads, const Dropout& dropout) {
  if (has_cpu_kernels(queries)) return PackedAttention::apply(queries, keys, values, rows, heads, dropout);
  if (has_gpu_kernel(queries, heads) && queries.size(0) > 0) {
    return attend_on_gpu(queries, keys, values, rows, heads, dropout.probability);
  }
  return attend_by_length(queries, keys, values, rows, heads, dropout.probability);
}

}  // namespace libtrain::models::detail
