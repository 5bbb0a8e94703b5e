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

/// The memory in use, in bytes: of this process, or what LibTorch's allocator has reserved on a GPU. 0: unknown.
std::int64_t memory_in_use(const c10::Device& device);

/// The memory that there is, in bytes: of this process's control groups, or of the GPU. 0: unknown. Reads files.
std::int64_t memory_limit(const c10::Device& device);

}  // namespace libtrain::detail
