#pragma once

#include <string>
#include <vector>

namespace libtrain::detail {

/// The GPU of one rank.
struct GpuIdentity {
  std::string host;
  std::string uuid;  ///< the same in every process, unlike the index of the device
  std::string name;
};

/// Converts an identity to one line for the other ranks, and back.
std::string to_line(const GpuIdentity& gpu);
GpuIdentity gpu_from_line(const std::string& line);

/// Describes which ranks share a GPU (element r of `gpus` is that of rank r); empty if each has its own.
std::string describe_shared_gpus(const std::vector<GpuIdentity>& gpus);

}  // namespace libtrain::detail
