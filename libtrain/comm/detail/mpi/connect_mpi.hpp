#pragma once

#include <memory>
#include <string>

#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// Whether this build has the MPI backend.
bool has_mpi();

/// What the MPI library that is loaded says of itself, on one line; empty in a build without MPI.
std::string mpi_library();

/// A transport over all ranks of the MPI job; initialises MPI where the program has not. All ranks must call it. Throws
/// EnvironmentError in a build without MPI.
std::unique_ptr<HostTransport> connect_mpi();

}  // namespace libtrain::detail
