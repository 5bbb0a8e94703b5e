#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/nccl/nccl_comm.hpp>

namespace libtrain::detail {

/// Connects all ranks of `control` over NCCL, each with its `device`. Throws CommunicationError on all ranks where one
/// of them fails.
std::shared_ptr<NcclComm> meet_over_nccl(Communicator& control, const at::Device& device, const Deadline& deadline);

}  // namespace libtrain::detail
