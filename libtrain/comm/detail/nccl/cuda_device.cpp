#include <libtrain/comm/detail/nccl/cuda_device.hpp>

#include <cuda_runtime_api.h>

namespace libtrain::detail {

namespace {

// A failure is reported by the call that follows.
void ignore(cudaError_t code) noexcept {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
}

}  // namespace

void enter_cuda_thread(int device) noexcept {
  ignore(cudaSetDevice(device));
  auto mode = cudaStreamCaptureModeThreadLocal;
  ignore(cudaThreadExchangeStreamCaptureMode(&mode));
}

bool cuda_is_unloading() noexcept {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaErrorCudartUnloading;
}

}  // namespace libtrain::detail
