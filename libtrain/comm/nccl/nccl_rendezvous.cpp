#include <libtrain/comm/nccl/nccl_rendezvous.hpp>

#include <cstring>

#include <c10/cuda/CUDAGuard.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/agreement.hpp>
#include <libtrain/comm/nccl/nccl_check.hpp>

namespace libtrain::detail {

namespace {

ncclUniqueId make_unique_id(Communicator& control, const CallOptions& options) {
  ncclUniqueId id{};
  const auto make = [&] {
    const auto code = control.rank() == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
    if (code != ncclSuccess) throw CommunicationError(describe_nccl(code));
  };
  run_together(control, "ncclGetUniqueId", make, options);
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
  const auto connect = [&] {
    const c10::cuda::CUDAGuard on_device(device);
    comm = std::make_shared<NcclComm>(id, control.rank(), control.world_size());
    comm->connect(Deadline::after(timeout / 4 * 3));
  };
  run_together(control, "Connecting over NCCL", connect, options);
  return comm;
}

}  // namespace libtrain::detail
