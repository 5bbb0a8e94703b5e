#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The largest peak resident memory of a rank, in bytes. All ranks must call it.
std::int64_t peak_rss_of_ranks(Communicator& communicator);

/// The most memory in bytes that LibTorch's allocator has reserved on a rank's GPU, the largest of all ranks; without
/// the memory of the CUDA context and of NCCL. `device` is this rank's GPU. All ranks must call it.
std::int64_t peak_gpu_memory_of_ranks(const c10::Device& device, Communicator& communicator);

/// The memory in use and its limit: of this process, or what LibTorch's allocator has reserved on a GPU.
struct MemoryUse {
  std::int64_t used_bytes = 0;   ///< 0: unknown
  std::int64_t limit_bytes = 0;  ///< 0: unknown
};
MemoryUse memory_use(const c10::Device& device);

}  // namespace libtrain::detail
