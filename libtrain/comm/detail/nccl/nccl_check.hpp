#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

namespace libtrain::detail {

/// False for a call in progress in a non-blocking communicator.
constexpr bool has_failed(ncclResult_t code) {
  return code != ncclSuccess && code != ncclInProgress;
}

/// NCCL's code, its meaning, and NCCL's last error message in this process.
std::string describe_nccl(ncclResult_t code);

/// Throws CommunicationError with the call, NCCL's code and meaning, and this rank if the call has failed.
void check_nccl(ncclResult_t code, std::string_view call, int rank);

}  // namespace libtrain::detail

#define LIBTRAIN_CHECK_NCCL(call, rank) ::libtrain::detail::check_nccl((call), #call, (rank))
