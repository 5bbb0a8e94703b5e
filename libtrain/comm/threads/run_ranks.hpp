#pragma once

#include <functional>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

/// Runs `body` as `world_size` ranks that are threads of this process, and returns when all have ended: the fast,
/// debuggable way to test code that needs ranks. When a rank throws, its peers' pending collectives fail with its
/// message, and the first exception to be thrown is rethrown here.
void run_ranks(int world_size, const std::function<void(Communicator&)>& body, CommunicatorOptions options = {});

}  // namespace libtrain
