#include <libtrain/comm/detail/mpi/connect_mpi.hpp>

#include <array>

#include <mpi.h>

#include <libtrain/comm/detail/mpi/mpi_transport.hpp>

namespace libtrain::detail {

bool has_mpi() {
  return true;
}

// May be called before MPI is initialised.
std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return {};
  const std::string whole{text.data()};
  return whole.substr(0, whole.find('\n'));
}

std::unique_ptr<HostTransport> connect_mpi(const Deadline& deadline) {
  return MpiTransport::of_world(deadline);
}

}  // namespace libtrain::detail
