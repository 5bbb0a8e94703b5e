#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/models/roberta/detail/dropout.hpp>

namespace libtrain::models::detail {

/// Which rows of packed tensors belong to which text.
struct TextRows {
  std::vector<std::int64_t> keys;     ///< rows of each text among keys and values
  std::vector<std::int64_t> queries;  ///< rows of each text among the queries, at least 0

  std::int64_t size() const { return static_cast<std::int64_t>(keys.size()); }
};

/// softmax(q k^T / sqrt(width of a head)) v within each text and head, [Q, heads * width]. `queries` [Q, heads *
/// width], `keys` and `values` [T, heads * width], of one type, texts one after another as `rows` says.
at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, const TextRows& rows,
                  std::int64_t heads, const Dropout& dropout);

}  // namespace libtrain::models::detail
