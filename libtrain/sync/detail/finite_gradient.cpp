#include <libtrain/sync/detail/finite_gradient.hpp>

#include <cmath>

#include <ATen/Dispatch.h>

#include <libtrain/comm/detail/tensor_checks.hpp>
#include <libtrain/numeric/detail/finite.hpp>

namespace libtrain::detail {

namespace {

// 0 for a tensor without elements.
double first_of(const at::Tensor& gradient) {
  double first = 0;
  if (gradient.numel() == 0) return first;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gradient.scalar_type(), "first_of",
                                  [&] { first = static_cast<double>(*gradient.const_data_ptr<scalar_t>()); });
  return first;
}

}  // namespace

bool is_finite(const at::Tensor& gradient) {
  const auto type = data_type_of(gradient.scalar_type());
  const auto dense = gradient.is_non_overlapping_and_dense() ? gradient : gradient.contiguous();
  return !type || all_finite(dense.const_data_ptr(), static_cast<std::size_t>(dense.numel()), *type);
}

bool begins_with_nan(const at::Tensor& gradient) {
  return std::isnan(first_of(gradient));
}

bool is_zero(const at::Tensor& gradient) {
  return first_of(gradient) == 0 && !gradient.any().item<bool>();
}

}  // namespace libtrain::detail
