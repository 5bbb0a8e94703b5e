#include <libtrain/comm/mpi/connect_mpi.hpp>

#include <libtrain/comm/mpi/mpi_transport.hpp>

namespace libtrain {

bool has_mpi() {
  return true;
}

std::unique_ptr<HostTransport> connect_mpi() {
  return MpiTransport::of_world();
}

}  // namespace libtrain
