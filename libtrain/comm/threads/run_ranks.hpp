#pragma once

#include <functional>
#include <memory>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain {

/// Runs `body` as `world_size` ranks that are threads of this process, and returns when all have ended: the fast,
/// debuggable way to test code that needs ranks. When a rank throws, its peers' pending collectives fail with its
/// message, and the first exception to be thrown is rethrown here.
void run_ranks(int world_size, const std::function<void(Communicator&)>& body, CommunicatorOptions options = {});

namespace detail {

/// The same over whatever `connect`, called on every rank's thread, makes of the transport between the threads.
using ConnectRank = std::function<std::unique_ptr<HostTransport>(std::unique_ptr<HostTransport>)>;
void run_ranks_over(const ConnectRank& connect, int world_size, const std::function<void(Communicator&)>& body,
                    CommunicatorOptions options = {});

}  // namespace detail

}  // namespace libtrain
