#pragma once

#include <string>
#include <vector>

namespace libtrain::detail {

/// The GPU of one rank.
struct GpuIdentity {
  std::string host;
  std::string uuid;  ///< the same in every process, unlike the index of the device
  std::string name;
  /// NCCL_HOSTID: ranks with different ones are on different hosts to NCCL, which connects them over the network, also
  /// if they share a GPU. Empty if it is not set.
  std::string nccl_host = {};
  /// The host's boot and the card's PCI address, by which NCCL compares GPUs: slices of one (MIG) have the same.
  std::string card = {};
};

/// Converts an identity to one line for the other ranks, and back.
std::string to_line(const GpuIdentity& gpu);
GpuIdentity gpu_from_line(const std::string& line);

/// Describes which ranks share a GPU, or a card with slices, which NCCL refuses (element r of `gpus` is that of rank
/// r); empty if each has its own.
std::string describe_shared_gpus(const std::vector<GpuIdentity>& gpus);

}  // namespace libtrain::detail
