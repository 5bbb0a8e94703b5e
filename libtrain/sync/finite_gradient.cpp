#include <libtrain/sync/finite_gradient.hpp>

#include <libtrain/comm/tensor_checks.hpp>
#include <libtrain/sync/finite.hpp>

namespace libtrain::detail {

bool is_finite(const at::Tensor& gradient) {
  const auto type = data_type_of(gradient.scalar_type());
  const auto dense = gradient.is_non_overlapping_and_dense() ? gradient : gradient.contiguous();
  return !type || all_finite(dense.const_data_ptr(), static_cast<std::size_t>(dense.numel()), *type);
}

}  // namespace libtrain::detail
