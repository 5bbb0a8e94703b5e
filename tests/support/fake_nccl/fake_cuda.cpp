// The CUDA runtime as NcclComm uses it, without a driver.

#include <atomic>

#include <libtrain/comm/detail/nccl/cuda_device.hpp>

namespace libtrain::detail {

void enter_cuda_thread(int /*device*/) noexcept {}

bool cuda_is_unloading() noexcept {
  return false;
}

}  // namespace libtrain::detail
