#pragma once

#include <memory>
#include <string>

#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// Whether this build has the MPI backend.
bool has_mpi();

/// The name and version of the loaded MPI library, on one line; empty in a build without MPI.
std::string mpi_library();

/// A transport over all ranks of the MPI job; initialises MPI if the program has not done that. All ranks must call it.
/// MPI's initialisation cannot be given up: the process ends with ExitCode::communication if it has not returned at
/// `deadline`. Throws EnvironmentError in a build without MPI.
std::unique_ptr<HostTransport> connect_mpi(const Deadline& deadline);

}  // namespace libtrain::detail
