#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

namespace libtrain::detail {

/// Page-locks host memory while the result exists, so that copies between it and `device` need no buffer of the driver
/// and do not block the host. `data` and `bytes` are whole pages. Null on the CPU, in a build without CUDA, and, after
/// one warning per process, if the driver refuses: copies are slower then.
std::shared_ptr<void> register_host_memory(void* data, std::size_t bytes, const at::Device& device);

}  // namespace libtrain::detail
