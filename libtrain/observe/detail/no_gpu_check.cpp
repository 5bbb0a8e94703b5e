#include <libtrain/observe/detail/gpu_check.hpp>

namespace libtrain {

detail::GpuSurvey detail::survey_gpus() {
  return {.why_none = "this libtrain was built without CUDA"};
}

}  // namespace libtrain
