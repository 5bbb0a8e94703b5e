#include <libtrain/comm/nccl/nccl_rendezvous.hpp>

#include <cstring>
#include <exception>

#include <c10/cuda/CUDAGuard.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/nccl/nccl_check.hpp>
#include <libtrain/comm/nccl/set_up.hpp>

namespace libtrain::detail {

namespace {

ncclUniqueId make_unique_id(Communicator& control, const CallOptions& options) {
  ncclUniqueId id{};
  std::string problem;
  if (control.rank() == 0) {
    const auto code = ncclGetUniqueId(&id);
    if (code != ncclSuccess) problem = describe_nccl(code);
  }
  throw_together<CommunicationError>(control, "ncclGetUniqueId", problem, options);
  const auto bytes = control.broadcast_bytes(std::string(id.internal, sizeof(id.internal)), 0, options);
  std::memcpy(id.internal, bytes.data(), sizeof(id.internal));
  return id;
}

}  // namespace

std::shared_ptr<NcclComm> meet_over_nccl(Communicator& control, const at::Device& device,
                                         std::chrono::milliseconds timeout) {
  const CallOptions options{.timeout = timeout};
  const auto id = make_unique_id(control, options);
  // NCCL's own set-up may hang where ranks begin it while others are still in the broadcast of the id.
  control.barrier(options);
  std::shared_ptr<NcclComm> comm;
  std::string problem;
  try {
    const c10::cuda::CUDAGuard on_device(device);
    comm = std::make_shared<NcclComm>(id, control.rank(), control.world_size());
    comm->connect(Deadline::after(timeout / 4 * 3));
  } catch (const std::exception& error) {
    problem = error.what();
  }
  throw_together<CommunicationError>(control, "Connecting over NCCL", problem, options);
  return comm;
}

}  // namespace libtrain::detail
