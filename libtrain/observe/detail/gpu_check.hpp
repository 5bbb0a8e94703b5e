#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace libtrain::detail {

/// One GPU that this process can see, and whether a kernel of this build runs on it.
struct GpuReport {
  int index = 0;
  std::string name;
  std::uint64_t memory_bytes = 0;
  std::string problem;  ///< empty where the kernel gave the right result
};

struct GpuSurvey {
  std::vector<GpuReport> gpus;
  std::string why_none;  ///< where there is no GPU: what the CUDA runtime says, or that this build has no CUDA
};

/// Runs a small kernel on every visible GPU. Leaves the calling thread's current device as it was; creates a CUDA
/// context on each GPU. Does not throw.
GpuSurvey survey_gpus();

}  // namespace libtrain::detail
