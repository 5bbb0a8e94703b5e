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

void check_agreement(const Launch& launch, const HostTransport& transport) {
  if (transport.rank() == launch.rank.value && transport.world_size() == launch.world_size.value) return;
  throw EnvironmentError(text("The launch environment says rank ", launch.rank.value, " of ", launch.world_size.value,
                              " (", launch.rank.source, ", ", launch.world_size.source, "), but MPI says rank ",
                              transport.rank(), " of ", transport.world_size(),
                              ". Start the program with the mpirun of the MPI it was built with, or with srun "
                              "--mpi=pmix; libtrain-info shows every variable."));
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
  auto transport = connect_mpi();
  check_agreement(launch, *transport);
  return std::make_shared<HostCommunicator>(std::move(transport), options);
}

}  // namespace libtrain
