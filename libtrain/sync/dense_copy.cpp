#include <libtrain/sync/dense_copy.hpp>

#include <cstring>

#include <ATen/core/grad_mode.h>

namespace libtrain::detail {

void copy_dense(const at::Tensor& source, const at::Tensor& target) {
  const bool as_memory = source.is_cpu() && target.is_cpu() && source.scalar_type() == target.scalar_type() &&
                         source.strides() == target.strides() && target.is_non_overlapping_and_dense() &&
                         !source.is_neg() && !source.is_conj();
  if (as_memory) {
    if (source.nbytes() > 0) std::memcpy(target.mutable_data_ptr(), source.const_data_ptr(), source.nbytes());
    return;
  }
  const at::NoGradGuard no_grad;
  target.copy_(source);
}

}  // namespace libtrain::detail
