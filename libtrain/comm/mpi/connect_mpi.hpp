#pragma once

#include <memory>

#include <libtrain/comm/host_transport.hpp>

namespace libtrain {

/// Whether this build has the MPI backend.
bool has_mpi();

/// A transport over all ranks of the MPI job; initialises MPI if nobody did. All ranks must call it. Throws
/// EnvironmentError in a build without MPI.
std::unique_ptr<HostTransport> connect_mpi();

}  // namespace libtrain
