#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/device_choice.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain {

struct ConnectOptions {
  /// The same on all ranks.
  DeviceChoice device = DeviceChoice::automatic;
  CommunicatorOptions communicator = {};
  /// Timeout for connecting all ranks; the communicator's timeout if it is not set.
  std::optional<std::chrono::milliseconds> connect_timeout = {};
  /// Called once, on another thread, if communication between GPUs fails while no thread waits for it, such as after a
  /// peer was lost during a long computation. Afterwards this process ends with ExitCode::communication, since later
  /// results of the GPU are invalid. Null: the reason is logged.
  std::function<void(const std::string& reason)> on_failure = {};
};

/// The result of connect().
struct Connection {
  std::shared_ptr<Communicator> communicator;
  c10::Device device = c10::kCPU;  ///< of this rank's tensors: the CPU, or a GPU with its index
};

/// Connects the ranks of a launched job, and agrees with them on a device for each.
///
/// The communicator comes from the backend that the launch names (see Backend and register_backend): by default a
/// SingleCommunicator for one process; for several, shared memory between the ranks of a host, and MPI or TCP between
/// hosts, depending on the launcher; on GPUs NCCL, or, with backend gloo, tcp or mpi, the same as on the CPU by way of
/// host memory. Ranks that have to share a GPU also use host memory, with a warning on rank 0.
///
/// The GPU of a rank is its local rank among the GPUs that it sees; if the launcher gives no local rank, the position
/// among the ranks of its host. It becomes the current device of the calling thread. Unless the CPU is chosen, the call
/// loads CUDA's driver and, if that shows a GPU, LibTorch's CUDA part: call it before functions of LibTorch that ask
/// for CUDA, such as torch::manual_seed().
///
/// All ranks must call it within `connect_timeout`; over MPI, whose initialisation cannot be given up, the process then
/// ends with ExitCode::communication. Throws UsageError for backend nccl on the CPU and, on all ranks, if they have
/// chosen different devices; EnvironmentError for a backend that is unknown or not usable here, if this build cannot
/// connect the ranks of that launcher, if the launch environment and MPI give different ranks, and, on all ranks, if a
/// rank lacks the GPU that was chosen or that other ranks have; CommunicationError if some ranks do not connect.
Connection connect(const Launch& launch, const ConnectOptions& options = {});

}  // namespace libtrain
