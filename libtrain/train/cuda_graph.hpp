#pragma once

#include <memory>

#include <c10/core/Device.h>

#include <libtrain/train/step_graph.hpp>

namespace libtrain {

/// A CUDA graph of one GPU (at::cuda::CUDAGraph), for StepGraph. `device` is a GPU, the current one without an index.
///
/// Capture is thread-local: threads that load data may call the CUDA runtime meanwhile. The memory of what is recorded
/// is in a pool of LibTorch's allocator that belongs to this graph. begin() throws c10::Error in the default stream.
///
/// Programs that call it link the CMake target libtrain::cuda_graph, which brings libtorch_cuda: it is then loaded at
/// the start of the process, also where there is no GPU. Throws UsageError for a device that is not CUDA's, and
/// EnvironmentError if the process sees no GPU, and in a build without CUDA.
std::unique_ptr<DeviceGraph> cuda_graph(const c10::Device& device);

}  // namespace libtrain
