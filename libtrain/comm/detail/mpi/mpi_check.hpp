#pragma once

#include <mpi.h>

#include <string_view>

namespace libtrain::detail {

/// Throws CommunicationError with the call, MPI's code and its meaning unless `code` is MPI_SUCCESS.
void check_mpi(int code, std::string_view call);

}  // namespace libtrain::detail

#define LIBTRAIN_CHECK_MPI(call) ::libtrain::detail::check_mpi((call), #call)
