#pragma once

#include <ATen/core/Tensor.h>

namespace libtrain::detail {

/// Whether a floating tensor in host memory, of any layout, has neither NaN nor infinity.
bool is_finite(const at::Tensor& gradient);

/// Whether its first element in memory is NaN: detects most gradients with NaN, at the cost of one element.
bool begins_with_nan(const at::Tensor& gradient);

/// Whether all its elements are zero. Reads one element if the first is not.
bool is_zero(const at::Tensor& gradient);

}  // namespace libtrain::detail
