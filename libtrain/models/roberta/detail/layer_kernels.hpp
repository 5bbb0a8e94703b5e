#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

#include <libtrain/models/roberta/detail/dropout.hpp>

namespace libtrain::models::detail {

/// Loops over rows on the CPU. Each call works on the rows `first` to `last` - 1 of matrices [rows, width], whose width
/// is a multiple of kWidthMultiple; numbers that do not depend on a row are [width]. All sums are in float32.

template <typename T>
struct NormRows {
  const T* values;
  const float* bias;
  const T* residual;
  const float* scale;
  const float* shift;
  T* sums;                    ///< result: residual + dropout(values + bias)
  T* outputs;                 ///< result: its norm
  float* means;               ///< result, [rows]
  float* inverse_deviations;  ///< result, [rows]
  std::int64_t width;
  double epsilon;
  Dropout dropout;
};

void norm_rows(const NormRows<float>& rows, std::int64_t first, std::int64_t last);
void norm_rows(const NormRows<c10::BFloat16>& rows, std::int64_t first, std::int64_t last);

template <typename T>
struct NormGradientRows {
  const T* gradients;  ///< with respect to the outputs
  const T* sums;
  const float* means;
  const float* inverse_deviations;
  const float* scale;
  T* to_residual;        ///< result: gradients with respect to the residual
  T* to_values;          ///< result: with respect to the values; null without dropout, where they are the same
  float* to_parameters;  ///< added to, [3, width]: with respect to scale, shift and bias
  std::int64_t width;
  Dropout dropout;
};

void norm_gradient_rows(const NormGradientRows<float>& rows, std::int64_t first, std::int64_t last);
void norm_gradient_rows(const NormGradientRows<c10::BFloat16>& rows, std::int64_t first, std::int64_t last);

/// outputs = gelu(values + bias).
void gelu_rows(const float* values, const float* bias, float* outputs, std::int64_t width, std::int64_t first,
               std::int64_t last);
void gelu_rows(const c10::BFloat16* values, const float* bias, c10::BFloat16* outputs, std::int64_t width,
               std::int64_t first, std::int64_t last);

/// outputs = gelu(values + bias) again; `gradients` with respect to the outputs become those with respect to the
/// values, whose sums over the rows are added to `to_bias`.
void gelu_gradient_rows(const float* values, const float* bias, float* outputs, float* gradients, float* to_bias,
                        std::int64_t width, std::int64_t first, std::int64_t last);
void gelu_gradient_rows(const c10::BFloat16* values, const float* bias, c10::BFloat16* outputs,
                        c10::BFloat16* gradients, float* to_bias, std::int64_t width, std::int64_t first,
                        std::int64_t last);

/// The numbers `first` to `first` + `count` - 1 of a normal sequence, times `deviation`: a function of the key. `first`
/// is a multiple of 2 * kWidthMultiple.
void normal_numbers(float* numbers, std::int64_t first, std::int64_t count, double deviation, std::uint64_t key);

}  // namespace libtrain::models::detail
