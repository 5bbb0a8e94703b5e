#pragma once

#include <memory>
#include <string>

#include <libtrain/comm/detail/tcp/rendezvous_place.hpp>
#include <libtrain/comm/detail/tcp/tcp_options.hpp>
#include <libtrain/comm/host_transport.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

/// Opens the store of torchrun's agent (see open_agent_store_place), which LibTorch has and programs without it lack.
using OpenAgentStore = std::unique_ptr<RendezvousPlace> (*)(const std::string& url, const std::string& run,
                                                            const TcpOptions& options);

/// Connects the ranks of a launched job of several processes: shared memory between those of a host, and MPI or TCP
/// between hosts, as the launcher has it. All ranks must call it. Throws EnvironmentError where this build cannot
/// connect the ranks of that launcher, and CommunicationError where ranks do not come before the deadline.
std::unique_ptr<HostTransport> connect_transport(const Launch& launch, const WaitPolicy& policy,
                                                 OpenAgentStore open_agent_store);

}  // namespace libtrain::detail
