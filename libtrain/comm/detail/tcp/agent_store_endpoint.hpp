#pragma once

#include <memory>
#include <string>

#include <libtrain/comm/detail/tcp/rendezvous_endpoint.hpp>

namespace libtrain::detail {

/// The store that the torchrun agent serves at `url`, tcp://host:port: a TCPStore of PyTorch. Rank 0 listens at its own
/// address (see `options`) and stores that, which replaces the address from before a restart.
///
/// The store is open to any process that can connect to it, so it is not trusted (see RendezvousEndpoint::is_trusted).
/// No wait is longer than its deadline plus two seconds, even if the agent is stopped: a call of c10d that does not
/// return is left behind on its own thread.
///
/// Its functions throw CommunicationError if the agent does not answer before the deadline. Throws UsageError for any
/// other `url`.
std::unique_ptr<RendezvousEndpoint> open_agent_store_endpoint(const std::string& url, const std::string& run,
                                                              const TcpOptions& options);

}  // namespace libtrain::detail
