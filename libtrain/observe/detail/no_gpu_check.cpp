#include <libtrain/observe/detail/gpu_check.hpp>

namespace libtrain {

detail::GpuProbe detail::probe_gpus() {
  return {.why_none = "this libtrain was built without CUDA"};
}

}  // namespace libtrain
