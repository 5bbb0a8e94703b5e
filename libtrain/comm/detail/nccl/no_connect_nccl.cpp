#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/nccl/connect_nccl.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>

namespace libtrain {

Backend detail::nccl_backend() {
  return {.name = "nccl",
          .why_unavailable =
              [](const Launch& launch) {
                return text("Backend 'nccl' (", launch.backend.source,
                            ") is not in this build. Use auto, gloo or mpi, or build with -DLIBTRAIN_CUDA=ON.");
              },
          .connect = connect_host_memory,
          .needs_gpus = true};
}

std::shared_ptr<Communicator> detail::connect_nccl(Communicator& /*control*/, const at::Device& /*device*/,
                                                   CommunicatorOptions /*options*/,
                                                   std::function<void(const std::string& reason)> /*on_failure*/,
                                                   const CallOptions& /*set_up*/) {
  throw EnvironmentError(
      "This libtrain was built without CUDA, so it has no NCCL backend. Configure with -DLIBTRAIN_CUDA=ON, or use "
      "--dist-backend gloo or mpi.",
      ErrorScope::all_ranks);
}

std::shared_ptr<Communicator> detail::single_gpu(const at::Device& device) {
  return std::make_shared<SingleCommunicator>(device);
}

}  // namespace libtrain
