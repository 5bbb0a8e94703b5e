#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace libtrain::tools {

/// nvmlPciInfo_t of <nvml.h>.
struct NvmlPci {
  std::array<char, 16> bus_id_legacy;
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int device_id;
  unsigned int subsystem_id;
  std::array<char, 32> bus_id;
};

/// nvmlMemory_t of <nvml.h>, in bytes.
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

/// The functions of NVIDIA's management library that are used here, as <nvml.h> declares them: they return 0 or an
/// error code, and `device` is a handle from get_device. A function that the installed library lacks is null. Tests
/// pass their own.
struct Nvml {
  int (*init)() = nullptr;
  int (*get_driver_version)(char* version, unsigned int length) = nullptr;
  int (*count_devices)(unsigned int* count) = nullptr;
  int (*get_device)(unsigned int index, void** device) = nullptr;
  int (*get_name)(void* device, char* name, unsigned int length) = nullptr;
  int (*get_uuid)(void* device, char* uuid, unsigned int length) = nullptr;
  int (*get_pci)(void* device, NvmlPci* pci) = nullptr;
  int (*get_memory)(void* device, NvmlMemory* memory) = nullptr;
  int (*get_capability)(void* device, int* major, int* minor) = nullptr;
  int (*get_link_generation)(void* device, unsigned int* generation) = nullptr;
  int (*get_max_link_generation)(void* device, unsigned int* generation) = nullptr;
  int (*get_link_width)(void* device, unsigned int* width) = nullptr;
  int (*get_max_link_width)(void* device, unsigned int* width) = nullptr;
  int (*get_persistence)(void* device, unsigned int* is_on) = nullptr;
  int (*get_throttle_reasons)(void* device, unsigned long long* reasons) = nullptr;
  int (*get_mig_mode)(void* device, unsigned int* current, unsigned int* pending) = nullptr;
  int (*get_compute_mode)(void* device, unsigned int* mode) = nullptr;
  int (*get_nvlink_state)(void* device, unsigned int link, unsigned int* is_active) = nullptr;
  int (*get_common_ancestor)(void* device, void* other, unsigned int* level) = nullptr;
};

/// One GPU of this machine. What the library does not tell is std::nullopt.
struct GpuFacts {
  std::string name;
  std::string uuid;
  std::string pci;  ///< as in /sys/bus/pci/devices: "0000:3b:00.0"
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> free_bytes;
  std::string compute_capability;  ///< "9.0"
  std::optional<unsigned int> pcie_generation, max_pcie_generation;
  std::optional<unsigned int> pcie_lanes, max_pcie_lanes;
  std::optional<bool> persistence, mig;
  std::optional<unsigned int> compute_mode;       ///< nvmlComputeMode_t: 0 default, 2 prohibited, 3 exclusive
  std::optional<std::uint64_t> throttle_reasons;  ///< nvmlClocksThrottleReason* bits
  int nvlinks = 0;                                ///< active links
};

/// How two GPUs are connected apart from NVLink, as `nvidia-smi topo -m` calls it: PIX, PXB, PHB, NODE, SYS.
struct GpuPair {
  std::size_t first = 0;
  std::size_t second = 0;
  std::string path;
};

struct NvmlReport {
  std::string driver_version;
  std::vector<GpuFacts> gpus;
  std::vector<GpuPair> pairs;
  std::string problem;  ///< why there are no facts; empty if there are
};

/// The library of this machine (libnvidia-ml.so.1), which belongs to the driver; null if there is none.
const Nvml* load_nvml();

/// The facts of all GPUs of the machine, also of those that CUDA_VISIBLE_DEVICES hides. `nvml` may be null.
NvmlReport read_nvml(const Nvml* nvml);

}  // namespace libtrain::tools
