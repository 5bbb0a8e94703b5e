#include <libtrain/comm/connect.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/host_communicator.hpp>
#include <libtrain/comm/mpi/connect_mpi.hpp>
#include <libtrain/comm/single/single_communicator.hpp>

namespace libtrain {

namespace {

void check_backend(const Launch& launch) {
  const auto& backend = launch.backend.value;
  if (backend == "auto" || backend == "gloo" || backend == "mpi") return;
  throw EnvironmentError(
      text("Backend '", backend, "' (", launch.backend.source, ") is not in this build: use auto, gloo or mpi."));
}

// All ranks learn of a disagreement on any of them, so that none goes on alone.
void check_agreement(const Launch& launch, Communicator& communicator) {
  std::string disagreement;
  if (communicator.rank() != launch.rank.value || communicator.world_size() != launch.world_size.value) {
    disagreement = text("The launch environment says rank ", launch.rank.value, " of ", launch.world_size.value, " (",
                        launch.rank.source, ", ", launch.world_size.source, "), but MPI says rank ",
                        communicator.rank(), " of ", communicator.world_size(),
                        ". Start the program with the mpirun of the MPI it was built with, or with srun --mpi=pmix; "
                        "libtrain-info shows every variable.");
  }
  for (const auto& found : communicator.all_gather_bytes(disagreement)) {
    if (!found.empty()) throw EnvironmentError(found, ErrorScope::all_ranks);
  }
}

}  // namespace

std::shared_ptr<Communicator> connect(const Launch& launch, CommunicatorOptions options) {
  check_backend(launch);
  if (launch.world_size.value == 1) return std::make_shared<SingleCommunicator>();
  if (launch.rendezvous.value != "mpi") {
    throw EnvironmentError(text(launch.world_size.value, " ranks were launched by ", to_string(launch.launcher),
                                " to meet at ", launch.rendezvous.value,
                                ", and this build can connect ranks over MPI only: start the program with mpirun -n ",
                                launch.world_size.value, "."));
  }
  auto communicator = std::make_shared<HostCommunicator>(connect_mpi(), options);
  check_agreement(launch, *communicator);
  return communicator;
}

}  // namespace libtrain
