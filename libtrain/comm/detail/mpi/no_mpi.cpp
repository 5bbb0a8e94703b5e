#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/mpi/connect_mpi.hpp>

namespace libtrain {

bool detail::has_mpi() {
  return false;
}

std::string detail::mpi_library() {
  return {};
}

std::unique_ptr<HostTransport> detail::connect_mpi(const Deadline&) {
  throw EnvironmentError(
      "This libtrain was built without MPI, but these ranks were started by MPI. Use --dist-backend gloo (TCP), or "
      "configure with -DLIBTRAIN_MPI=ON.");
}

}  // namespace libtrain
