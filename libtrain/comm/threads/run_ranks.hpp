#pragma once

#include <functional>
#include <memory>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain {

/// Runs `body` on `world_size` ranks that are threads of this process, and returns when all have finished: a fast way
/// to test and debug code that needs several ranks. If a rank throws, its peers' pending collectives fail with its
/// message, and the first exception is rethrown here.
void run_ranks(int world_size, const std::function<void(Communicator&)>& body, CommunicatorOptions options = {});

namespace detail {

/// The same over the transport that `connect`, called on every rank's thread, makes from the transport between threads.
using ConnectRank = std::function<std::unique_ptr<HostTransport>(std::unique_ptr<HostTransport>)>;
void run_ranks_over(const ConnectRank& connect, int world_size, const std::function<void(Communicator&)>& body,
                    CommunicatorOptions options = {});

}  // namespace detail

}  // namespace libtrain
