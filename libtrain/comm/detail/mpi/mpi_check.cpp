#include <libtrain/comm/detail/mpi/mpi_check.hpp>

#include <string>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char meaning[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, meaning, &length) != MPI_SUCCESS) length = 0;
  const auto name = call.substr(0, call.find('('));
  throw CommunicationError(
      text(name, " failed with code ", code, ": ", std::string(meaning, static_cast<std::size_t>(length)), "."));
}

}  // namespace libtrain::detail
