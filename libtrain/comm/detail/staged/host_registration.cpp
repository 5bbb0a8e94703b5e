#include <libtrain/comm/detail/staged/host_registration.hpp>

#include <atomic>

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

void warn_once(std::size_t bytes, cudaError_t code) {
  static std::atomic<bool> has_warned = false;
  if (has_warned.exchange(true)) return;
  log_warning(text("The CUDA driver cannot page-lock ", bytes, " bytes of host memory (", cudaGetErrorString(code),
                   "): copies between the GPU and other ranks will be slower. Check the limits of this container."));
}

void unregister(void* data, const at::Device& device) noexcept {
  try {
    // A thread that has not used a device yet would create a context on device 0.
    const c10::cuda::CUDAGuard on_device(device);
    if (cudaHostUnregister(data) != cudaSuccess) static_cast<void>(cudaGetLastError());
  } catch (...) {
    // The CUDA runtime has been unloaded, which ended all registrations.
  }
}

}  // namespace

std::shared_ptr<void> register_host_memory(void* data, std::size_t bytes, const at::Device& device) {
  if (!device.is_cuda()) return nullptr;
  const c10::cuda::CUDAGuard on_device(device);
  const auto code = cudaHostRegister(data, bytes, cudaHostRegisterPortable);
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // or the next CUDA call would report it
    warn_once(bytes, code);
    return nullptr;
  }
  return {data, [device](void* memory) { unregister(memory, device); }};
}

}  // namespace libtrain::detail
