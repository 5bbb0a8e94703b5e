#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/environment.hpp>

#include <tools/info/nvml.hpp>

namespace libtrain::tools {

/// A port of an InfiniBand or RoCE adapter.
struct NetworkPort {
  std::string device;  ///< "mlx5_0"
  int port = 1;
  std::string state;       ///< "ACTIVE", "DOWN", ...
  std::string rate;        ///< "200 Gb/sec (4X HDR)"
  std::string link_layer;  ///< "InfiniBand" or "Ethernet"
  std::string pci;         ///< "0000:3c:00.0"; empty for a virtual device

  bool is_active() const { return state == "ACTIVE"; }
};

/// How a GPU and a network adapter are connected, from the folders of both in sysfs.
struct NetworkPath {
  std::string gpu;     ///< PCI address
  std::string device;  ///< "mlx5_0"
  std::string path;    ///< "same PCIe switch", "same root complex", "same NUMA node" or "another NUMA node"
};

/// What a host offers to a job on GPUs.
struct GpuHost {
  NvmlReport nvml;
  std::vector<NetworkPort> ports;
  std::vector<NetworkPath> paths;              ///< of all pairs
  bool has_peermem = false;                    ///< the kernel module nvidia_peermem is loaded
  bool may_use_dmabuf = false;                 ///< open kernel modules on Linux 5.12 or newer
  std::optional<std::uint64_t> memlock_bytes;  ///< limit of page-locked memory; std::nullopt without a limit
  std::optional<std::uint64_t> shm_bytes;      ///< size of /dev/shm; std::nullopt if there is none
};

/// Reads the host. `root` is "/", or the folder of a made-up tree with sys/, proc/ and dev/shm.
GpuHost read_gpu_host(const Nvml* nvml, const std::filesystem::path& root = "/");

/// What the process knows of its job.
struct JobFacts {
  std::optional<int> local_world_size;     ///< ranks of this host
  std::vector<std::string> visible_uuids;  ///< of the GPUs that CUDA shows to this process
};

/// What would make a job on the GPUs of this host slow, one sentence of fact and one of advice each; empty if nothing
/// is known, and without GPUs.
std::vector<std::string> find_slowness(const GpuHost& host, const JobFacts& job, const Environment& environment);

}  // namespace libtrain::tools
