#include <libtrain/base/error.hpp>
#include <libtrain/comm/nccl/connect_nccl.hpp>

namespace libtrain {

bool has_nccl() {
  return false;
}

std::shared_ptr<Communicator> connect_nccl(Communicator& /*control*/, const at::Device& /*device*/,
                                           CommunicatorOptions /*options*/,
                                           std::function<void(const std::string& reason)> /*on_failure*/) {
  throw EnvironmentError(
      "This libtrain was built without CUDA, so it has no NCCL backend: configure with -DLIBTRAIN_CUDA=ON, or use "
      "--dist-backend gloo or mpi.",
      ErrorScope::all_ranks);
}

}  // namespace libtrain
