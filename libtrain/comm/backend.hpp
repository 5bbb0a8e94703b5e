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

/// The arguments of Backend::connect: which job to connect, and how.
struct ConnectRequest {
  const Launch& launch;
  CommunicatorOptions options;
  /// Timeout for connecting all ranks.
  std::chrono::milliseconds connect_timeout;
};

/// The arguments of Backend::connect_gpus.
struct GpuConnectRequest {
  std::shared_ptr<Communicator> host;  ///< the result of Backend::connect, which no other code uses any more
  at::Device device;                   ///< this rank's GPU, with its index
  CommunicatorOptions options;
  /// Timeout for connecting all ranks.
  std::chrono::milliseconds connect_timeout;
  /// See ConnectOptions::on_failure.
  std::function<void(const std::string& reason)> on_failure;
};

/// A communication backend, chosen by its name: `--dist-backend NAME`.
struct Backend {
  /// Lower-case letters, digits and underscores.
  std::string name;

  /// Returns why this process cannot use the backend in that launch, as a message to the user; empty if it can. Null
  /// means that it always can.
  std::function<std::string(const Launch&)> why_unavailable = {};

  /// Connects the ranks. All ranks call it, also the only rank of a job of one process. The ranks use the result to
  /// agree on their device, and keep it if it accepts tensors there. Throws EnvironmentError if they cannot be
  /// connected, and CommunicationError if some ranks do not connect.
  std::function<std::shared_ptr<Communicator>(const ConnectRequest&)> connect;

  /// The communicator for tensors on GPUs, if the ranks have agreed on GPUs. All ranks call it, also the only rank of a
  /// job of one process. Null: the result of `connect` if it accepts such tensors, otherwise they are sent through host
  /// memory.
  std::function<std::shared_ptr<Communicator>(const GpuConnectRequest&)> connect_gpus = {};

  /// Whether it cannot be used without GPUs: then DeviceChoice::automatic means DeviceChoice::cuda.
  bool needs_gpus = false;
};

/// Registers a backend for connect() and run() in this process; every process of a job must register it before it calls
/// them. Replaces a backend of the same name, also a built-in one. Throws UsageError for an invalid name and for a
/// backend without `connect`. Any thread may call it.
void register_backend(Backend backend);

/// The names that connect() accepts, in the order of their registration: "auto", "gloo", "tcp", "mpi", "nccl" and those
/// of register_backend(). Any thread may call it.
std::vector<std::string> backend_names();

/// The communicator for tensors in host memory that the built-in backends use: a SingleCommunicator for one process;
/// for several, shared memory between the ranks of a host, and MPI or TCP between hosts. A backend for a device can use
/// it to exchange set-up data. Collective; throws as connect().
std::shared_ptr<Communicator> connect_host_memory(const ConnectRequest& request);

/// A communicator for tensors in host memory over your own transport, which is all that a backend for CPUs has to
/// implement. Its communication thread runs the collectives in the order of the calls while the caller computes.
std::shared_ptr<Communicator> communicate_over(std::unique_ptr<HostTransport> transport, CommunicatorOptions options);

namespace detail {

/// The backend that the launch names. Throws EnvironmentError, which lists the registered backends, if there is none.
Backend find_backend(const Launch& launch);

}  // namespace detail

}  // namespace libtrain
