#include <libtrain/optim/detail/unscale.hpp>

#include <limits>

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace libtrain::optim::detail {

void multiply(const std::vector<at::Tensor>& gradients, const at::Tensor& factor) {
  const auto type = gradients.front().scalar_type();
  if (type == at::kHalf) {
    // The factor may be below the smallest float16. This operator takes it in float32; what it finds is not needed.
    auto found_inf = at::zeros({}, factor.options().dtype(at::kFloat));
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, factor.to(at::kFloat));
  } else {
    at::_foreach_mul_(gradients, factor.to(type));
  }
}

void unscale(const std::vector<at::Tensor>& gradients, at::Tensor found_inf, const at::Tensor& inverse_scale) {
  const bool has_operator = gradients.front().scalar_type() != at::kBFloat16 || gradients.front().is_cpu();
  if (has_operator) {
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse_scale);
    return;
  }
  // On GPUs that operator has no bfloat16. The largest magnitude is NaN or infinite if an element is, and its
  // difference from itself is then NaN, which counts as true.
  const auto largest =
      at::stack(at::_foreach_norm(gradients, std::numeric_limits<double>::infinity(), at::kFloat)).amax();
  found_inf.logical_or_(largest.sub(largest));
  multiply(gradients, inverse_scale);
}

}  // namespace libtrain::optim::detail
