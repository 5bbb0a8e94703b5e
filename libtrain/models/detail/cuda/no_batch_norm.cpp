#include <libtrain/models/detail/cuda/batch_norm.hpp>

namespace libtrain::models::detail {

bool can_fuse_batch_norm(const torch::nn::BatchNorm2dImpl&, const at::Tensor&) {
  return false;
}

at::Tensor fused_batch_norm(torch::nn::BatchNorm2dImpl&, const at::Tensor&, const at::Tensor&, bool) {
  TORCH_CHECK(false, "This libtrain was built without CUDA.");
}

}  // namespace libtrain::models::detail
