#include <tools/info/gpu_host.hpp>

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <system_error>

#include <libtrain/base/text.hpp>

namespace libtrain::tools {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kEnoughShm = 1024 * kMiB;
constexpr std::uint64_t kEnoughMemlock = 1024 * kMiB;

// nvmlClocksThrottleReason*, of which the first two are no fault.
constexpr std::uint64_t kIdle = 0x1;
constexpr std::uint64_t kPowerCap = 0x4;
constexpr std::uint64_t kHardwareSlowdown = 0x8;
constexpr std::uint64_t kSoftwareThermal = 0x20;
constexpr std::uint64_t kHardwareThermal = 0x40;
constexpr std::uint64_t kPowerBrake = 0x80;

std::string first_line(const fs::path& file) {
  std::ifstream stream{file};
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<std::string> entries_of(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// The device's folder below the root complex: ".../pci0000:3a/0000:3a:00.0/0000:3b:00.0". Empty if it does not exist.
fs::path real_folder(const fs::path& link) {
  std::error_code error;
  auto folder = fs::canonical(link, error);
  return error ? fs::path{} : folder;
}

// "4: ACTIVE" is "ACTIVE".
std::string after_colon(const std::string& line) {
  const auto colon = line.find(": ");
  return colon == std::string::npos ? line : line.substr(colon + 2);
}

std::vector<NetworkPort> read_ports(const fs::path& root) {
  std::vector<NetworkPort> ports;
  const auto folder = root / "sys/class/infiniband";
  for (const auto& device : entries_of(folder)) {
    for (const auto& port : entries_of(folder / device / "ports")) {
      const auto place = folder / device / "ports" / port;
      const auto number = parse_integer(port, 1, 255);
      if (!number) continue;
      const auto pci = real_folder(folder / device / "device");
      ports.push_back({.device = device,
                       .port = static_cast<int>(*number),
                       .state = after_colon(first_line(place / "state")),
                       .rate = first_line(place / "rate"),
                       .link_layer = first_line(place / "link_layer"),
                       .pci = pci.empty() ? "" : pci.filename().string()});
    }
  }
  return ports;
}

std::string path_between(const fs::path& root, const std::string& first, const std::string& second) {
  const auto devices = root / "sys/bus/pci/devices";
  const auto a = real_folder(devices / first);
  const auto b = real_folder(devices / second);
  if (a.empty() || b.empty()) return {};
  const auto [end, other] = std::ranges::mismatch(a, b);
  const auto is_root_complex = [](const fs::path& part) { return part.string().starts_with("pci"); };
  const auto complex = std::find_if(a.begin(), end, is_root_complex);
  // Two devices below one port of the root complex are behind a switch.
  if (complex != end) return std::distance(complex, end) > 1 ? "same PCIe switch" : "same root complex";
  const auto node = first_line(a / "numa_node");
  return !node.empty() && node == first_line(b / "numa_node") ? "same NUMA node" : "another NUMA node";
}

// nvidia's open modules on Linux 5.12 or newer, where adapters can map memory of the GPU by dmabuf.
bool may_use_dmabuf(const fs::path& root) {
  int major = 0;
  int minor = 0;
  const auto release = first_line(root / "proc/sys/kernel/osrelease");
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) return false;
  const bool is_new = major > 5 || (major == 5 && minor >= 12);
  return is_new && first_line(root / "proc/driver/nvidia/version").find("Open Kernel Module") != std::string::npos;
}

std::string name_of(const GpuHost& host, std::size_t index) {
  return text("GPU ", index, " (", host.nvml.gpus[index].name, ", ", host.nvml.gpus[index].uuid, ")");
}

void check_sharing(const GpuHost& host, const JobFacts& job, std::vector<std::string>& found) {
  const auto gpus = static_cast<int>(job.visible_uuids.size());
  // A launcher that shows each process a GPU of its own is not told from one that shows all the same.
  if (gpus <= 1 && host.nvml.gpus.size() > 1) return;
  if (!job.local_world_size || gpus == 0 || *job.local_world_size <= gpus) return;
  found.push_back(text(*job.local_world_size, " ranks of this host share ", gpus, gpus == 1 ? " GPU" : " GPUs",
                       ", so their collectives go through host memory. Start as many ranks on a host as it has GPUs."));
}

void check_gpu(const GpuHost& host, std::size_t index, std::vector<std::string>& found) {
  const auto& gpu = host.nvml.gpus[index];
  const auto name = name_of(host, index);
  const auto reasons = gpu.throttle_reasons.value_or(0);
  if (gpu.pcie_lanes && gpu.max_pcie_lanes && *gpu.pcie_lanes < *gpu.max_pcie_lanes) {
    found.push_back(text(name, " is connected with ", *gpu.pcie_lanes, " of ", *gpu.max_pcie_lanes,
                         " PCIe lanes. Check its slot, riser or the configuration of the virtual machine."));
  }
  // An idle GPU lowers the speed of its link.
  if ((reasons & kIdle) == 0 && gpu.pcie_generation && gpu.max_pcie_generation &&
      *gpu.pcie_generation < *gpu.max_pcie_generation) {
    found.push_back(text(name, " is connected with PCIe generation ", *gpu.pcie_generation, " of ",
                         *gpu.max_pcie_generation, ". Check its slot, riser or the firmware's settings."));
  }
  if (gpu.persistence && !*gpu.persistence) {
    found.push_back(text(name,
                         " has persistence mode off, so that each start of a program initialises the driver anew. "
                         "Start nvidia-persistenced, or run nvidia-smi -pm 1."));
  }
  if ((reasons & (kHardwareThermal | kSoftwareThermal)) != 0) {
    found.push_back(text(name, " is throttled because it is too hot. Check its cooling."));
  } else if ((reasons & (kPowerBrake | kHardwareSlowdown)) != 0) {
    found.push_back(text(name, " is throttled by the hardware (power brake). Check its power supply."));
  } else if ((reasons & kPowerCap) != 0) {
    found.push_back(text(name, " runs at its power limit. nvidia-smi -q -d POWER shows the limit."));
  }
  if (gpu.compute_mode.value_or(0) == 2) {
    found.push_back(text(name, " is in compute mode Prohibited: no program can use it. Run nvidia-smi -c DEFAULT."));
  }
}

void check_network(const GpuHost& host, const Environment& environment, std::vector<std::string>& found) {
  const bool has_active = std::ranges::any_of(host.ports, &NetworkPort::is_active);
  if (!host.ports.empty() && !has_active) {
    found.push_back(text("No port of ", host.ports.size(),
                         " InfiniBand or RoCE ports is active, so NCCL uses TCP between "
                         "hosts. Check cables and the subnet manager with ibstat."));
  }
  if (host.ports.empty()) return;
  if (environment.get("NCCL_IB_DISABLE").value_or("0") != "0") {
    found.push_back(
        "NCCL_IB_DISABLE is set, so NCCL uses TCP between hosts although the host has InfiniBand or RoCE. "
        "Unset it.");
  }
  if (!host.has_peermem && !host.may_use_dmabuf) {
    found.push_back(
        "GPUDirect RDMA is not available: nvidia_peermem is not loaded, and the kernel modules do not "
        "support dmabuf, so data between hosts are copied through host memory. Run modprobe nvidia_peermem.");
  }
  if (host.memlock_bytes && *host.memlock_bytes < kEnoughMemlock) {
    found.push_back(
        text("The limit of locked memory is ", *host.memlock_bytes / 1024,
             " KiB, too little for InfiniBand: NCCL may fail or use TCP. Raise it to unlimited (ulimit -l, or "
             "--ulimit memlock=-1 of the container)."));
  }
}

}  // namespace

GpuHost read_gpu_host(const Nvml* nvml, const fs::path& root) {
  GpuHost host{.nvml = read_nvml(nvml), .ports = read_ports(root)};
  for (const auto& gpu : host.nvml.gpus) {
    for (const auto& port : host.ports) {
      const auto path = gpu.pci.empty() || port.pci.empty() ? "" : path_between(root, gpu.pci, port.pci);
      if (!path.empty()) host.paths.push_back({gpu.pci, port.device, path});
    }
  }
  std::error_code error;
  host.has_peermem = fs::exists(root / "sys/module/nvidia_peermem", error);
  host.may_use_dmabuf = may_use_dmabuf(root);
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) host.memlock_bytes = limit.rlim_cur;
  struct statvfs file_system{};
  if (statvfs((root / "dev/shm").c_str(), &file_system) == 0) {
    host.shm_bytes = static_cast<std::uint64_t>(file_system.f_blocks) * file_system.f_frsize;
  }
  return host;
}

std::vector<std::string> find_slowness(const GpuHost& host, const JobFacts& job, const Environment& environment) {
  std::vector<std::string> found;
  if (host.nvml.gpus.empty()) return found;
  check_sharing(host, job, found);
  for (std::size_t index = 0; index < host.nvml.gpus.size(); ++index) {
    // GPUs of other jobs are not this job's.
    const auto& uuid = host.nvml.gpus[index].uuid;
    if (job.visible_uuids.empty() || std::ranges::find(job.visible_uuids, uuid) != job.visible_uuids.end()) {
      check_gpu(host, index, found);
    }
  }
  if (host.nvml.gpus.size() > 1 && environment.get("NCCL_P2P_DISABLE").value_or("0") != "0") {
    found.push_back("NCCL_P2P_DISABLE is set, so the GPUs of this host exchange data through host memory. Unset it.");
  }
  check_network(host, environment, found);
  if (host.shm_bytes.value_or(0) < kEnoughShm) {
    found.push_back(
        text("/dev/shm has ", host.shm_bytes.value_or(0) / kMiB,
             " MiB, which may be too small for NCCL and for ranks that share memory. Give the container more "
             "(--shm-size=8g of Docker, a memory volume in Kubernetes)."));
  }
  return found;
}

}  // namespace libtrain::tools
