#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

namespace libtrain::detail {

/// Page-locks host memory for as long as the result lives, so that copies between it and `device` need no buffer of
/// the driver and do not hold up the host. `data` and `bytes` are whole pages. Null on the CPU, in a build without
/// CUDA, and, after one warning in this process, where the driver refuses: copies are slower then.
std::shared_ptr<void> register_host_memory(void* data, std::size_t bytes, const at::Device& device);

}  // namespace libtrain::detail
