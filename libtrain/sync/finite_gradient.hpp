#pragma once

#include <ATen/core/Tensor.h>

namespace libtrain::detail {

/// Whether a floating tensor in host memory, of any layout, holds neither NaN nor infinity.
bool is_finite(const at::Tensor& gradient);

}  // namespace libtrain::detail
