#include <libtrain/observe/detail/gpu_check.hpp>

#include <vector>

#include <cuda_runtime.h>

namespace libtrain {

namespace {

constexpr int kElements = 1 << 16;
constexpr int kThreads = 256;

__global__ void square(int* values) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  values[index] *= values[index];
}

class DeviceInts {
 public:
  DeviceInts() = default;
  ~DeviceInts() { cudaFree(memory_); }
  DeviceInts(const DeviceInts&) = delete;  // one owner of the memory
  DeviceInts& operator=(const DeviceInts&) = delete;

  cudaError_t allocate() { return cudaMalloc(&memory_, kElements * sizeof(int)); }
  int* get() { return memory_; }

 private:
  int* memory_ = nullptr;
};

cudaError_t run_on_current_device(std::vector<int>& values) {
  DeviceInts memory;
  const std::size_t bytes = kElements * sizeof(int);
  if (const auto failed = memory.allocate(); failed != cudaSuccess) return failed;
  if (const auto failed = cudaMemcpy(memory.get(), values.data(), bytes, cudaMemcpyHostToDevice);
      failed != cudaSuccess) {
    return failed;
  }
  square<<<kElements / kThreads, kThreads>>>(memory.get());
  if (const auto failed = cudaGetLastError(); failed != cudaSuccess) return failed;
  return cudaMemcpy(values.data(), memory.get(), bytes, cudaMemcpyDeviceToHost);
}

std::string find_problem(int index) {
  std::vector<int> values(kElements);
  for (int i = 0; i < kElements; ++i) values[static_cast<std::size_t>(i)] = i % 1000;
  auto status = cudaSetDevice(index);
  if (status == cudaSuccess) status = run_on_current_device(values);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  for (int i = 0; i < kElements; ++i) {
    if (values[static_cast<std::size_t>(i)] != (i % 1000) * (i % 1000)) return "a kernel gave a wrong result";
  }
  return {};
}

}  // namespace

detail::GpuProbe detail::probe_gpus() {
  detail::GpuProbe probe;
  int count = 0;
  if (const auto failed = cudaGetDeviceCount(&count); failed != cudaSuccess || count == 0) {
    probe.why_none = failed == cudaSuccess ? "the driver shows no GPU to this process" : cudaGetErrorString(failed);
    return probe;
  }
  int current = 0;
  cudaGetDevice(&current);
  for (int index = 0; index < count; ++index) {
    detail::GpuReport report{.index = index};
    cudaDeviceProp properties{};
    if (const auto failed = cudaGetDeviceProperties(&properties, index); failed == cudaSuccess) {
      report.name = properties.name;
      report.memory_bytes = properties.totalGlobalMem;
      report.problem = find_problem(index);
    } else {
      report.problem = cudaGetErrorString(failed);
    }
    probe.gpus.push_back(report);
  }
  cudaSetDevice(current);
  return probe;
}

}  // namespace libtrain
