#pragma once

#include <ATen/core/Tensor.h>

#include <libtrain/models/roberta/detail/dropout.hpp>

namespace libtrain::models::detail {

/// Whether the operators here have loops of their own for numbers of this type, device and width.
bool has_cpu_kernels(const at::Tensor& values);

/// Throws c10::Error in a backward pass with create_graph, whose gradients would lack what these loops compute.
void require_first_derivative();

/// Calls work(T{}) with the type of a tensor that has_cpu_kernels().
template <typename Work>
void with_type(const at::Tensor& tensor, const Work& work) {
  tensor.scalar_type() == at::kFloat ? work(float{}) : work(c10::BFloat16{});
}

/// norm(residual + dropout(values + bias)), of the residual's type. `values` and `residual` [N, H]; `bias`, `scale` and
/// `shift` [H].
at::Tensor add_and_norm(const at::Tensor& values, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& scale, const at::Tensor& shift, double epsilon, const Dropout& dropout);

/// gelu(inputs * up^T + bias) * down^T, [N, H]. `inputs` [N, H], `up` [F, H], `bias` [F], `down` [H, F].
at::Tensor feed_forward(const at::Tensor& inputs, const at::Tensor& up, const at::Tensor& bias, const at::Tensor& down);

}  // namespace libtrain::models::detail
