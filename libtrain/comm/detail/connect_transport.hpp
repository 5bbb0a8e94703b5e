#pragma once

#include <memory>
#include <string>

#include <libtrain/comm/detail/tcp/rendezvous_endpoint.hpp>
#include <libtrain/comm/detail/tcp/tcp_options.hpp>
#include <libtrain/comm/host_transport.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

/// Opens the store of torchrun's agent (see open_agent_store_endpoint); null in programs without LibTorch, which it
/// needs.
using OpenAgentStore = std::unique_ptr<RendezvousEndpoint> (*)(const std::string& url, const std::string& run,
                                                               const TcpOptions& options);

/// Connects the ranks of a launched job of several processes: shared memory between the ranks of a host, and MPI or TCP
/// between hosts, depending on the launcher. All ranks must call it. Throws EnvironmentError if this build cannot
/// connect the ranks of that launcher, and CommunicationError if some ranks do not connect before the deadline.
std::unique_ptr<HostTransport> connect_transport(const Launch& launch, const WaitPolicy& policy,
                                                 OpenAgentStore open_agent_store);

}  // namespace libtrain::detail
