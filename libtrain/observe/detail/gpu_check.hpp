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
  std::string problem;  ///< empty if the kernel gave the right result
};

struct GpuProbe {
  std::vector<GpuReport> gpus;
  std::string why_none;  ///< if there is no GPU: the error of the CUDA runtime, or that this build has no CUDA
};

/// Runs a small kernel on every visible GPU. Does not change the calling thread's current device; creates a CUDA
/// context on each GPU. Does not throw.
GpuProbe probe_gpus();

}  // namespace libtrain::detail
