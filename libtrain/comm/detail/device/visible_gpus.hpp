#pragma once

#include <string>
#include <vector>

namespace libtrain::detail {

/// A GPU that CUDA's driver shows to this process.
struct VisibleGpu {
  std::string name;
  std::string uuid;  ///< as `nvidia-smi -L` prints it: the same in every process, unlike the index of the device
};

/// The GPUs of this process: the position of each is its device index.
struct VisibleGpus {
  std::vector<VisibleGpu> gpus = {};
  /// Why there is none, as the end of "rank 2 on node-7 has no usable GPU: "; empty if `gpus` is not empty.
  std::string problem = {};
  /// Whether the machine has a driver that this build cannot use. False if it has none, or shows no GPU.
  bool is_broken = false;
  int cuda = 0;  ///< the newest CUDA version that the driver supports, 13020 for 13.2; 0 if unknown
};

/// The functions of CUDA's driver that are used here, as <cuda.h> declares them (cuDeviceGetUuid in version 2). They
/// return 0 or an error code.
struct CudaDriver {
  int (*init)(unsigned int flags) = nullptr;
  int (*get_version)(int* version) = nullptr;
  int (*count_devices)(int* count) = nullptr;
  int (*get_device)(int* device, int index) = nullptr;
  int (*get_name)(char* name, int length, int device) = nullptr;
  int (*get_uuid)(unsigned char* uuid, int device) = nullptr;
  int (*get_error_string)(int code, const char** text) = nullptr;
};

/// What a process finds out about its GPUs; separate so that tests can state it.
struct GpuEnvironment {
  const CudaDriver* driver = nullptr;     ///< null if it cannot be loaded
  std::string why_no_driver = {};         ///< the loader's message
  const char* visible_devices = nullptr;  ///< CUDA_VISIBLE_DEVICES; null if it is not set
  int needed_cuda = 0;                    ///< of this build, 13000 for 13.0; 0 if it was built without CUDA
};

VisibleGpus find_gpus(const GpuEnvironment& environment);

/// The GPUs of this process, from the driver, which the first call loads (libcuda.so.1; no context is created on a
/// GPU, and neither LibTorch's CUDA part nor the CUDA runtime is loaded). In a build without CUDA it loads nothing. Any
/// thread may call it.
const VisibleGpus& visible_gpus();

/// The version of the NVIDIA driver that the kernel runs, such as "580.65.06", from its text in `file`; empty if there
/// is none.
std::string kernel_driver_version(const std::string& file = "/proc/driver/nvidia/version");

/// "cuda:1 (NVIDIA H100 80GB HBM3, GPU-8f3c...)" of a device of this process.
std::string describe_gpu(int index);

}  // namespace libtrain::detail
