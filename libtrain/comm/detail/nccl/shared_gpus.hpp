#pragma once

#include <string>
#include <vector>

namespace libtrain::detail {

/// The GPU of one rank.
struct GpuIdentity {
  std::string host;
  std::string uuid;  ///< the same for the same card, whatever number a process knows it by
  std::string name;
};

/// One line for the other ranks, and back.
std::string to_line(const GpuIdentity& gpu);
GpuIdentity gpu_from_line(const std::string& line);

/// Which ranks, the index into `gpus`, have one GPU between them; empty where each has its own.
std::string describe_shared_gpus(const std::vector<GpuIdentity>& gpus);

}  // namespace libtrain::detail
