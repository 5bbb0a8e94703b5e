#pragma once

#include <ATen/core/Tensor.h>

namespace libtrain::detail {

/// Whether a floating tensor in host memory, of any layout, holds neither NaN nor infinity.
bool is_finite(const at::Tensor& gradient);

/// Whether the first of its elements in memory is NaN: what a gradient of NaN shows, at the cost of one element.
bool begins_with_nan(const at::Tensor& gradient);

/// Whether all its elements are zero. Costs one element where the first is not.
bool is_zero(const at::Tensor& gradient);

}  // namespace libtrain::detail
