#include <libtrain/models/roberta/detail/layer_operators.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

namespace libtrain::models::detail {

at::Tensor add_and_norm(const at::Tensor& values, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& scale, const at::Tensor& shift, double epsilon, const Dropout& dropout) {
  const auto dropped = at::dropout(values + bias, dropout.probability, dropout.probability > 0);
  return at::layer_norm(dropped + residual, {residual.size(1)}, scale, shift, epsilon).to(residual.scalar_type());
}

at::Tensor feed_forward(const at::Tensor& inputs, const at::Tensor& up, const at::Tensor& bias,
                        const at::Tensor& down) {
  return at::linear(at::gelu(at::linear(inputs, up, bias)), down);
}

}  // namespace libtrain::models::detail
