#pragma once

#include <ATen/core/Tensor.h>

#include <libtrain/models/roberta/detail/dropout.hpp>

namespace libtrain::models::detail {

/// norm(residual + dropout(values + bias)), of the residual's type. `values` and `residual` [N, H]; `bias`, `scale` and
/// `shift` [H].
at::Tensor add_and_norm(const at::Tensor& values, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& scale, const at::Tensor& shift, double epsilon, const Dropout& dropout);

/// gelu(inputs * up^T + bias) * down^T, [N, H]. `inputs` [N, H], `up` [F, H], `bias` [F], `down` [H, F].
at::Tensor feed_forward(const at::Tensor& inputs, const at::Tensor& up, const at::Tensor& bias, const at::Tensor& down);

}  // namespace libtrain::models::detail
