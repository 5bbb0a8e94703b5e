#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/mpi/connect_mpi.hpp>

namespace libtrain {

bool detail::has_mpi() {
  return false;
}

std::string detail::mpi_library() {
  return {};
}

std::unique_ptr<HostTransport> detail::connect_mpi() {
  throw EnvironmentError(
      "This libtrain was built without MPI, so its ranks cannot talk to each other: configure with -DLIBTRAIN_MPI=ON, "
      "or run a single process.");
}

}  // namespace libtrain
