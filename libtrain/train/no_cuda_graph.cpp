#include <libtrain/train/cuda_graph.hpp>

#include <libtrain/base/error.hpp>

namespace libtrain {

std::unique_ptr<DeviceGraph> cuda_graph(const c10::Device& /*device*/) {
  throw EnvironmentError(
      "This libtrain was built without CUDA, so it has no CUDA graphs. Configure with -DLIBTRAIN_CUDA=ON, or run steps "
      "without StepGraph.");
}

}  // namespace libtrain
