#pragma once

#include <chrono>
#include <memory>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/nccl/nccl_comm.hpp>

namespace libtrain::detail {

/// Connects all ranks of `control` over NCCL, each with its `device`. Throws CommunicationError on all ranks where one
/// of them fails. NCCL is given three quarters of `timeout`, so that those who wait for this rank hear what it failed
/// with before they give up on it.
std::shared_ptr<NcclComm> meet_over_nccl(Communicator& control, const at::Device& device,
                                         std::chrono::milliseconds timeout);

}  // namespace libtrain::detail
