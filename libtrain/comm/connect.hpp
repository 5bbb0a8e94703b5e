#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain {

/// The communicator of a launched job, from the backend that the launch names (see Backend and register_backend): by
/// default a SingleCommunicator for one process; for several, shared memory between the ranks of a host, and MPI or TCP
/// between hosts, depending on the launcher; NCCL for tensors on GPUs with backend nccl. All ranks must call it within
/// `connect_timeout`, which defaults to the timeout of `options`. Throws EnvironmentError for a backend that is unknown
/// or not usable here, if this build cannot connect the ranks of that launcher, or if the launch environment and MPI
/// give different ranks, and CommunicationError if some ranks do not connect.
std::shared_ptr<Communicator> connect(const Launch& launch, CommunicatorOptions options = {},
                                      std::optional<std::chrono::milliseconds> connect_timeout = {});

}  // namespace libtrain
