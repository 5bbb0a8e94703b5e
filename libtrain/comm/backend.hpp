#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/host_transport.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain {

/// What a backend is asked for: the communicator of this rank of a job.
struct ConnectRequest {
  const Launch& launch;
  CommunicatorOptions options;
  /// In which all ranks must have met.
  std::chrono::milliseconds connect_timeout;
};

/// A way in which the ranks of a job talk to each other, chosen by its name: `--dist-backend NAME`.
struct Backend {
  /// Of lower-case letters, digits and underscores.
  std::string name;

  /// Why this process cannot use it in that launch, as a message to the user; empty where it can. Null: always can.
  std::function<std::string(const Launch&)> why_unavailable = {};

  /// Connects the ranks: all of them call it, also the only rank of a job of one process. Throws EnvironmentError where
  /// they cannot be connected, and CommunicationError where some do not come.
  std::function<std::shared_ptr<Communicator>(const ConnectRequest&)> connect;
};

/// Makes a backend known to connect() and run(), for this process; every process of a job must do the same before it
/// calls them. Replaces the backend of the same name, also a built-in one. Throws UsageError for a name that cannot be
/// asked for, and for a backend without `connect`. Any thread.
void register_backend(Backend backend);

/// The names that connect() knows, in the order of their registration: "auto", "gloo", "tcp", "mpi", "nccl" and those
/// of register_backend(). Any thread.
std::vector<std::string> backend_names();

/// The communicator for tensors in host memory that the built-in backends begin with: a SingleCommunicator for one
/// process; for several, shared memory between the ranks of a host, and MPI or TCP between hosts. With it a backend for
/// a device can tell all ranks what they need to know of each other. Collective; throws as connect().
std::shared_ptr<Communicator> connect_host_memory(const ConnectRequest& request);

/// A communicator for tensors in host memory over a transport of your own: all that a backend for CPUs has to write.
/// Its communication thread runs the collectives while the caller computes, in the order in which they were called.
std::shared_ptr<Communicator> communicate_over(std::unique_ptr<HostTransport> transport, CommunicatorOptions options);

namespace detail {

/// The one that the launch names. Throws EnvironmentError, which lists the known ones, where there is none.
Backend find_backend(const Launch& launch);

}  // namespace detail

}  // namespace libtrain
