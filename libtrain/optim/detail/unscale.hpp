#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

// Operators on gradients of one device and dtype, floating, dense or not, with numbers of their device; nothing waits.

namespace libtrain::optim::detail {

/// Multiplies all by `factor`, a float32 or float64 tensor without dimensions. It is rounded to bfloat16 for bfloat16
/// gradients, which have no more digits either: LibTorch 2.11 has no operator for a list and a wider number.
void multiply(const std::vector<at::Tensor>& gradients, const at::Tensor& factor);

/// Sets `found_inf` to 1 if an element is NaN or infinite and leaves it otherwise; multiplies all by `inverse_scale`,
/// for bfloat16 as multiply() does. Both are float32 without dimensions.
void unscale(const std::vector<at::Tensor>& gradients, at::Tensor found_inf, const at::Tensor& inverse_scale);

}  // namespace libtrain::optim::detail
