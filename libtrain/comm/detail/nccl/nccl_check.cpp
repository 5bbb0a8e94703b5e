#include <libtrain/comm/detail/nccl/nccl_check.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

std::string describe_nccl(ncclResult_t code) {
  const std::string last = ncclGetLastError(nullptr);
  return text("code ", static_cast<int>(code), ": ", ncclGetErrorString(code), last.empty() ? "" : "; ", last);
}

void check_nccl(ncclResult_t code, std::string_view call, int rank) {
  if (!has_failed(code)) return;
  const auto name = call.substr(0, call.find('('));
  throw CommunicationError(text(name, " failed on rank ", rank, " with ", describe_nccl(code),
                                ". Run again with NCCL_DEBUG=INFO for NCCL's own log."));
}

}  // namespace libtrain::detail
