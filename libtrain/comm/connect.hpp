#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain {

/// The communicator of a launched job, from the backend that the launch names (see Backend and register_backend): by
/// default a SingleCommunicator for one process; for several, shared memory between the ranks of a host, and MPI or TCP
/// between hosts, as the launcher has it; NCCL for tensors on GPUs with backend nccl. All ranks must call it, and have
/// met within `connect_timeout`, which is the timeout of `options` where it is not given. Throws EnvironmentError for a
/// backend that is unknown or not usable here, where this build cannot connect the ranks of that launcher, or where the
/// launch environment and MPI disagree about who this is, and CommunicationError where ranks do not come.
std::shared_ptr<Communicator> connect(const Launch& launch, CommunicatorOptions options = {},
                                      std::optional<std::chrono::milliseconds> connect_timeout = {});

}  // namespace libtrain
