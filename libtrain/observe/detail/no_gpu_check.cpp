#include <libtrain/observe/detail/gpu_check.hpp>

namespace libtrain {

GpuSurvey survey_gpus() {
  return {.why_none = "this libtrain was built without CUDA"};
}

}  // namespace libtrain
