#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

#include <libtrain/models/roberta/detail/dropout.hpp>

namespace libtrain::models::detail {

/// One head of one text on the CPU. Rows of queries, keys, values and what belongs to them lie `stride` numbers apart.
/// Products and sums are in float32. Probabilities are not kept: the backward pass computes them again from the
/// logarithm of each query's sum, as in T. Dao et al., FlashAttention, NeurIPS 2022.
template <typename T>
struct AttentionHead {
  const T* queries;
  const T* keys;
  const T* values;
  std::int64_t query_count;
  std::int64_t key_count;
  std::int64_t width;
  std::int64_t stride;
  Dropout dropout;  ///< of this head and text
};

/// Floats that attend_head() needs besides, at the start of a cache line: in proportion to the keys.
std::int64_t attend_scratch(std::int64_t key_count, std::int64_t width);

/// The same of attention_gradients(): two numbers for each query and key, and those in proportion to either.
std::int64_t gradients_scratch(std::int64_t query_count, std::int64_t key_count, std::int64_t width);

/// Writes `outputs`, and the logarithm of each query's sum of exponentials, [query_count].
void attend_head(const AttentionHead<float>& head, float* outputs, float* log_sums, float* scratch);
void attend_head(const AttentionHead<c10::BFloat16>& head, c10::BFloat16* outputs, float* log_sums, float* scratch);

template <typename T>
struct AttentionGradients {
  const T* outputs;
  const T* of_outputs;
  const float* log_sums;
  T* to_queries;  ///< results
  T* to_keys;
  T* to_values;
};

void attention_gradients(const AttentionHead<float>& head, const AttentionGradients<float>& gradients, float* scratch);
void attention_gradients(const AttentionHead<c10::BFloat16>& head, const AttentionGradients<c10::BFloat16>& gradients,
                         float* scratch);

}  // namespace libtrain::models::detail
