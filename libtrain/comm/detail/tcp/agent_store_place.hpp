#pragma once

#include <memory>
#include <string>

#include <libtrain/comm/detail/tcp/rendezvous_place.hpp>

namespace libtrain::detail {

/// The store that torchrun's agent serves at `url`, tcp://host:port: a TCPStore of PyTorch. Rank 0 listens at an
/// address of its own (`options` says which) and leaves it there, in the place of what ranks have left before a
/// restart.
///
/// The store is open to any process that reaches it: what it says is not trusted (see RendezvousPlace::is_trusted). No
/// wait is longer than its deadline and two seconds, also where the agent is stopped: a call that c10d does not come
/// back from is left behind on a thread of its own.
///
/// Throws CommunicationError where the store is not there before the deadline, or does not answer.
std::unique_ptr<RendezvousPlace> open_agent_store_place(const std::string& url, const std::string& run,
                                                        const TcpOptions& options);

}  // namespace libtrain::detail
