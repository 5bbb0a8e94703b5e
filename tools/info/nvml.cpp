#include <tools/info/nvml.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cctype>

#include <libtrain/base/text.hpp>

namespace libtrain::tools {

namespace {

constexpr unsigned int kMaxNvlinks = 18;  // NVML_NVLINK_MAX_LINKS

template <typename Function>
void look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

template <typename Value, typename Function>
std::optional<Value> ask(Function* function, void* device) {
  Value value{};
  if (function == nullptr || function(device, &value) != 0) return std::nullopt;
  return value;
}

template <typename Function>
std::string ask_text(Function* function, void* device) {
  std::array<char, 128> text{};
  if (function == nullptr || function(device, text.data(), static_cast<unsigned int>(text.size() - 1)) != 0) return {};
  return text.data();
}

// "00000000:3B:00.0" is "0000:3b:00.0" in sysfs.
std::string sysfs_name(std::string bus_id) {
  std::ranges::transform(bus_id, bus_id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto colon = bus_id.find(':');
  return colon != std::string::npos && colon > 4 ? bus_id.substr(colon - 4) : bus_id;
}

std::string path_name(unsigned int level) {
  if (level < 10) return "same board";
  if (level < 20) return "PIX";
  if (level < 30) return "PXB";
  if (level < 40) return "PHB";
  return level < 50 ? "NODE" : "SYS";
}

GpuFacts read_gpu(const Nvml& nvml, void* device) {
  GpuFacts gpu{.name = ask_text(nvml.get_name, device), .uuid = ask_text(nvml.get_uuid, device)};
  if (const auto pci = ask<NvmlPci>(nvml.get_pci, device)) gpu.pci = sysfs_name(pci->bus_id.data());
  if (const auto memory = ask<NvmlMemory>(nvml.get_memory, device)) {
    gpu.memory_bytes = memory->total;
    gpu.free_bytes = memory->free;
  }
  int major = 0;
  int minor = 0;
  if (nvml.get_capability != nullptr && nvml.get_capability(device, &major, &minor) == 0) {
    gpu.compute_capability = text(major, '.', minor);
  }
  gpu.pcie_generation = ask<unsigned int>(nvml.get_link_generation, device);
  gpu.max_pcie_generation = ask<unsigned int>(nvml.get_max_link_generation, device);
  gpu.pcie_lanes = ask<unsigned int>(nvml.get_link_width, device);
  gpu.max_pcie_lanes = ask<unsigned int>(nvml.get_max_link_width, device);
  if (const auto mode = ask<unsigned int>(nvml.get_persistence, device)) gpu.persistence = *mode != 0;
  gpu.compute_mode = ask<unsigned int>(nvml.get_compute_mode, device);
  gpu.throttle_reasons = ask<unsigned long long>(nvml.get_throttle_reasons, device);
  unsigned int current = 0;
  unsigned int pending = 0;
  if (nvml.get_mig_mode != nullptr && nvml.get_mig_mode(device, &current, &pending) == 0) gpu.mig = current != 0;
  for (unsigned int link = 0; nvml.get_nvlink_state != nullptr && link < kMaxNvlinks; ++link) {
    unsigned int is_active = 0;
    if (nvml.get_nvlink_state(device, link, &is_active) == 0 && is_active != 0) ++gpu.nvlinks;
  }
  return gpu;
}

}  // namespace

const Nvml* load_nvml() {
  static Nvml nvml;
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
  if (library == nullptr) return nullptr;
  look_up(library, "nvmlInit_v2", nvml.init);
  look_up(library, "nvmlSystemGetDriverVersion", nvml.get_driver_version);
  look_up(library, "nvmlDeviceGetCount_v2", nvml.count_devices);
  look_up(library, "nvmlDeviceGetHandleByIndex_v2", nvml.get_device);
  look_up(library, "nvmlDeviceGetName", nvml.get_name);
  look_up(library, "nvmlDeviceGetUUID", nvml.get_uuid);
  look_up(library, "nvmlDeviceGetPciInfo_v3", nvml.get_pci);
  look_up(library, "nvmlDeviceGetMemoryInfo", nvml.get_memory);
  look_up(library, "nvmlDeviceGetCudaComputeCapability", nvml.get_capability);
  look_up(library, "nvmlDeviceGetCurrPcieLinkGeneration", nvml.get_link_generation);
  look_up(library, "nvmlDeviceGetMaxPcieLinkGeneration", nvml.get_max_link_generation);
  look_up(library, "nvmlDeviceGetCurrPcieLinkWidth", nvml.get_link_width);
  look_up(library, "nvmlDeviceGetMaxPcieLinkWidth", nvml.get_max_link_width);
  look_up(library, "nvmlDeviceGetPersistenceMode", nvml.get_persistence);
  look_up(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.get_throttle_reasons);
  look_up(library, "nvmlDeviceGetMigMode", nvml.get_mig_mode);
  look_up(library, "nvmlDeviceGetComputeMode", nvml.get_compute_mode);
  look_up(library, "nvmlDeviceGetNvLinkState", nvml.get_nvlink_state);
  look_up(library, "nvmlDeviceGetTopologyCommonAncestor", nvml.get_common_ancestor);
  return &nvml;
}

NvmlReport read_nvml(const Nvml* nvml) {
  if (nvml == nullptr) return {.problem = "libnvidia-ml.so.1, a part of NVIDIA's driver, is not installed"};
  if (nvml->init == nullptr || nvml->count_devices == nullptr || nvml->get_device == nullptr) {
    return {.problem = "libnvidia-ml.so.1 lacks the functions to list GPUs"};
  }
  if (const int code = nvml->init(); code != 0) return {.problem = text("nvmlInit failed with code ", code)};
  NvmlReport report;
  std::array<char, 128> version{};
  if (nvml->get_driver_version != nullptr && nvml->get_driver_version(version.data(), version.size() - 1) == 0) {
    report.driver_version = version.data();
  }
  unsigned int count = 0;
  if (const int code = nvml->count_devices(&count); code != 0) {
    report.problem = text("nvmlDeviceGetCount failed with code ", code);
    return report;
  }
  std::vector<void*> devices;
  for (unsigned int index = 0; index < count; ++index) {
    void* device = nullptr;
    if (nvml->get_device(index, &device) != 0) continue;  // a lost GPU
    report.gpus.push_back(read_gpu(*nvml, device));
    devices.push_back(device);
  }
  for (std::size_t first = 0; first < devices.size(); ++first) {
    for (std::size_t second = first + 1; second < devices.size(); ++second) {
      unsigned int level = 0;
      if (nvml->get_common_ancestor == nullptr ||
          nvml->get_common_ancestor(devices[first], devices[second], &level) != 0) {
        continue;
      }
      report.pairs.push_back({first, second, path_name(level)});
    }
  }
  if (report.gpus.size() < count) {
    report.problem = text(count - report.gpus.size(), " of ", count, " GPUs do not answer");
  } else if (count == 0) {
    report.problem = "the driver finds no GPU in this machine or container";
  }
  return report;
}

}  // namespace libtrain::tools
