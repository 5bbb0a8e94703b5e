#include <libtrain/comm/connect.hpp>

#include <torch/cuda.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/connect_transport.hpp>
#include <libtrain/comm/host_communicator.hpp>
#include <libtrain/comm/nccl/connect_nccl.hpp>
#include <libtrain/comm/single/single_communicator.hpp>
#include <libtrain/comm/tcp/agent_store_place.hpp>

namespace libtrain {

namespace {

void check_backend(const Launch& launch) {
  const auto& backend = launch.backend.value;
  if (backend == "nccl" && Environment::of_process().get("LIBTRAIN_ENCRYPTION") == "on") {
    throw EnvironmentError(
        "LIBTRAIN_ENCRYPTION is on, but NCCL sends gradients between hosts as they are: unset it, or use "
        "--dist-backend gloo.");
  }
  if (backend == "auto" || backend == "gloo" || backend == "mpi" || (backend == "nccl" && has_nccl())) return;
  throw EnvironmentError(text("Backend '", backend, "' (", launch.backend.source, ") is not in this build: use auto, ",
                              "gloo or mpi", has_nccl() ? ", or nccl for GPUs." : "."));
}

// All ranks learn of a disagreement on any of them, so that none goes on alone.
void check_agreement(const Launch& launch, Communicator& communicator) {
  std::string disagreement;
  if (communicator.rank() != launch.rank.value || communicator.world_size() != launch.world_size.value) {
    disagreement =
        text("The launch environment says rank ", launch.rank.value, " of ", launch.world_size.value, " (",
             launch.rank.source, ", ", launch.world_size.source, "), but its peers say rank ", communicator.rank(),
             " of ", communicator.world_size(),
             ". Start the program with the mpirun of the MPI it was built with (libtrain-info names it), with "
             "srun --mpi=pmix, or have the ranks meet without MPI: --dist-url tcp://host:port.");
  }
  for (const auto& found : communicator.all_gather_bytes(disagreement)) {
    if (!found.empty()) throw EnvironmentError(found, ErrorScope::all_ranks);
  }
}

std::shared_ptr<Communicator> connect_gpus(const Launch& launch, const std::shared_ptr<Communicator>& control,
                                           CommunicatorOptions options) {
  const auto visible = static_cast<int>(torch::cuda::device_count());
  const at::Device device{at::kCUDA, static_cast<c10::DeviceIndex>(device_index(launch, visible))};
  // Nobody may be waiting for the failed collective: its failure ends the job from here.
  return connect_nccl(*control, device, options, [control](const std::string& reason) {
    log_error(reason);
    control->abort(reason);
  });
}

}  // namespace

std::shared_ptr<Communicator> connect(const Launch& launch, CommunicatorOptions options,
                                      std::optional<std::chrono::milliseconds> connect_timeout) {
  check_backend(launch);
  if (launch.world_size.value == 1) return std::make_shared<SingleCommunicator>();
  const Patience patience{Deadline::after(connect_timeout.value_or(options.timeout))};
  auto transport = connect_transport(launch, patience, open_agent_store_place);
  const auto description = transport->describe();
  auto communicator = std::make_shared<HostCommunicator>(std::move(transport), options);
  check_agreement(launch, *communicator);
  if (communicator->rank() == 0) log_info(description);
  return launch.backend.value == "nccl" ? connect_gpus(launch, communicator, options) : communicator;
}

}  // namespace libtrain
