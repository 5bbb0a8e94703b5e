// libtrain-info on GPUs: a made-up NVML and a made-up sysfs.

#include <tools/info/gpu_host.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/support/temporary_folder.hpp>

namespace libtrain::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Devices are handles with the numbers 1 and 2.
unsigned int number_of(void* device) {
  return static_cast<unsigned int>(reinterpret_cast<std::uintptr_t>(device));
}

template <unsigned int value>
int answer(void*, unsigned int* result) {
  *result = value;
  return 0;
}

Nvml nvml_of_two() {
  return {.init = [] { return 0; },
          .get_driver_version =
              [](char* version, unsigned int length) {
                std::strncpy(version, "580.65.06", length);
                return 0;
              },
          .count_devices =
              [](unsigned int* count) {
                *count = 2;
                return 0;
              },
          .get_device =
              [](unsigned int index, void** device) {
                *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index + 1));
                return 0;
              },
          .get_name =
              [](void*, char* name, unsigned int length) {
                std::strncpy(name, "NVIDIA H100", length);
                return 0;
              },
          .get_uuid =
              [](void* device, char* uuid, unsigned int length) {
                std::strncpy(uuid, number_of(device) == 1 ? "GPU-1" : "GPU-2", length);
                return 0;
              },
          .get_pci =
              [](void* device, NvmlPci* pci) {
                std::strncpy(pci->bus_id.data(), number_of(device) == 1 ? "00000000:3B:00.0" : "00000000:D8:00.0",
                             pci->bus_id.size() - 1);
                return 0;
              },
          .get_memory =
              [](void*, NvmlMemory* memory) {
                *memory = {.total = 80, .free = 70, .used = 10};
                return 0;
              },
          .get_capability =
              [](void*, int* major, int* minor) {
                *major = 9;
                *minor = 0;
                return 0;
              },
          .get_link_generation = answer<5>,
          .get_max_link_generation = answer<5>,
          .get_link_width = answer<16>,
          .get_max_link_width = answer<16>,
          .get_persistence = answer<1>,
          .get_throttle_reasons =
              [](void*, unsigned long long* reasons) {
                *reasons = 0;
                return 0;
              },
          .get_mig_mode =
              [](void*, unsigned int* current, unsigned int*) {
                *current = 0;
                return 0;
              },
          .get_compute_mode = answer<0>,
          .get_nvlink_state =
              [](void*, unsigned int link, unsigned int* is_active) {
                if (link > 3) return 3;  // not supported
                *is_active = link < 3 ? 1 : 0;
                return 0;
              },
          .get_common_ancestor =
              [](void*, void*, unsigned int* level) {
                *level = 50;
                return 0;
              }};
}

class GpuHostTest : public ::testing::Test {
 protected:
  GpuHostTest() {
    // GPU 1 and the first adapter are behind one switch; GPU 2 is at another processor.
    add_device("pci0000:3a/0000:3a:00.0/0000:3b:00.0", "0");
    add_device("pci0000:3a/0000:3a:00.0/0000:3c:00.0", "0");
    add_device("pci0000:d7/0000:d7:00.0/0000:d8:00.0", "1");
    fs::create_directories(root() / "dev/shm");
    write("proc/sys/kernel/osrelease", "5.15.0-1064-azure");
  }

  fs::path root() const { return folder_.path(); }

  void write(const std::string& file, const std::string& line) const {
    fs::create_directories((root() / file).parent_path());
    std::ofstream{root() / file} << line << '\n';
  }

  void add_device(const std::string& path, const std::string& numa_node) const {
    const auto folder = "sys/devices/" + path;
    write(folder + "/numa_node", numa_node);
    fs::create_directories(root() / "sys/bus/pci/devices");
    fs::create_symlink(root() / folder, root() / "sys/bus/pci/devices" / fs::path(path).filename());
  }

  void add_adapter(const std::string& name, const std::string& state) const {
    const auto folder = "sys/class/infiniband/" + name;
    write(folder + "/ports/1/state", state);
    write(folder + "/ports/1/rate", "200 Gb/sec (4X HDR)");
    write(folder + "/ports/1/link_layer", "InfiniBand");
    fs::create_symlink(root() / "sys/bus/pci/devices/0000:3c:00.0", root() / folder / "device");
  }

  GpuHost host() const {
    auto host = read_gpu_host(&nvml_, root());
    host.memlock_bytes = std::nullopt;
    host.shm_bytes = std::uint64_t{1} << 33;
    return host;
  }

  // What slows down a job whose process sees both GPUs.
  static std::vector<std::string> slowness(const GpuHost& host,
                                           std::map<std::string, std::string, std::less<>> variables = {},
                                           int ranks = 2) {
    return find_slowness(host, {.local_world_size = ranks, .visible_uuids = {"GPU-1", "GPU-2"}},
                         Environment{std::move(variables)});
  }

  const test::TemporaryFolder folder_;
  Nvml nvml_ = nvml_of_two();
};

TEST_F(GpuHostTest, ReadsTheGpus) {
  const auto found = host();
  EXPECT_EQ(found.nvml.driver_version, "580.65.06");
  EXPECT_EQ(found.nvml.problem, "");
  ASSERT_EQ(found.nvml.gpus.size(), 2u);
  const auto& gpu = found.nvml.gpus[1];
  EXPECT_EQ(gpu.name, "NVIDIA H100");
  EXPECT_EQ(gpu.uuid, "GPU-2");
  EXPECT_EQ(gpu.pci, "0000:d8:00.0");
  EXPECT_EQ(gpu.memory_bytes, 80u);
  EXPECT_EQ(gpu.compute_capability, "9.0");
  EXPECT_EQ(gpu.pcie_lanes, 16u);
  EXPECT_EQ(gpu.nvlinks, 3);
  EXPECT_EQ(gpu.mig, false);
  ASSERT_EQ(found.nvml.pairs.size(), 1u);
  EXPECT_EQ(found.nvml.pairs[0].path, "SYS");
}

TEST_F(GpuHostTest, ReadsAdaptersAndTheirPathsToGpus) {
  add_adapter("mlx5_0", "4: ACTIVE");
  const auto found = host();
  ASSERT_EQ(found.ports.size(), 1u);
  EXPECT_EQ(found.ports[0].device, "mlx5_0");
  EXPECT_EQ(found.ports[0].state, "ACTIVE");
  EXPECT_EQ(found.ports[0].rate, "200 Gb/sec (4X HDR)");
  EXPECT_EQ(found.ports[0].pci, "0000:3c:00.0");
  ASSERT_EQ(found.paths.size(), 2u);
  EXPECT_EQ(found.paths[0].path, "same PCIe switch");
  EXPECT_EQ(found.paths[1].path, "another NUMA node");
}

TEST_F(GpuHostTest, WithoutALibraryHasNoGpusAndNothingSlow) {
  const auto found = read_gpu_host(nullptr, root());
  EXPECT_THAT(found.nvml.gpus, IsEmpty());
  EXPECT_THAT(found.nvml.problem, HasSubstr("libnvidia-ml.so.1"));
  EXPECT_THAT(slowness(found, {{"NCCL_IB_DISABLE", "1"}}), IsEmpty());
}

TEST_F(GpuHostTest, KeepsWhatAnOlderLibraryTells) {
  nvml_ = {.init = nvml_.init,
           .count_devices = nvml_.count_devices,
           .get_device = nvml_.get_device,
           .get_name = nvml_.get_name};
  const auto found = host();
  ASSERT_EQ(found.nvml.gpus.size(), 2u);
  EXPECT_EQ(found.nvml.gpus[0].name, "NVIDIA H100");
  EXPECT_EQ(found.nvml.gpus[0].memory_bytes, std::nullopt);
  EXPECT_EQ(found.nvml.gpus[0].mig, std::nullopt);
}

TEST_F(GpuHostTest, NamesAGpuThatDoesNotAnswer) {
  nvml_.get_device = [](unsigned int index, void** device) {
    *device = reinterpret_cast<void*>(std::uintptr_t{1});
    return index == 0 ? 0 : 15;  // NVML_ERROR_GPU_IS_LOST
  };
  EXPECT_EQ(host().nvml.gpus.size(), 1u);
  EXPECT_EQ(host().nvml.problem, "1 of 2 GPUs do not answer");
}

TEST_F(GpuHostTest, FindsNothingWrongWithAGoodHost) {
  add_adapter("mlx5_0", "4: ACTIVE");
  fs::create_directories(root() / "sys/module/nvidia_peermem");
  EXPECT_THAT(slowness(host()), IsEmpty());
}

TEST_F(GpuHostTest, FindsRanksThatShareGpus) {
  EXPECT_THAT(slowness(host(), {}, 3), ElementsAre(HasSubstr("3 ranks of this host share 2 GPUs")));
  // Slurm's --gpus-per-task shows each process its own.
  EXPECT_THAT(find_slowness(host(), {.local_world_size = 2, .visible_uuids = {"GPU-2"}}, Environment{}), IsEmpty());
}

TEST_F(GpuHostTest, FindsWhatIsWrongWithAGpu) {
  nvml_.get_link_width = [](void* device, unsigned int* width) {
    *width = number_of(device) == 1 ? 16 : 4;
    return 0;
  };
  nvml_.get_persistence = answer<0>;
  EXPECT_THAT(slowness(host()),
              ElementsAre(AllOf(HasSubstr("GPU 0"), HasSubstr("persistence mode off")),
                          HasSubstr("GPU 1 (NVIDIA H100, GPU-2) is connected with 4 of 16 PCIe lanes"),
                          AllOf(HasSubstr("GPU 1"), HasSubstr("persistence mode off"))));
  // GPUs of other jobs are of no interest.
  EXPECT_THAT(find_slowness(host(), {.local_world_size = 1, .visible_uuids = {"GPU-1"}}, Environment{}),
              Not(Contains(HasSubstr("GPU-2"))));
}

TEST_F(GpuHostTest, FindsASlowLinkOnlyOfABusyGpu) {
  nvml_.get_link_generation = answer<1>;
  EXPECT_THAT(slowness(host()), Contains(HasSubstr("PCIe generation 1 of 5")));
  nvml_.get_throttle_reasons = [](void*, unsigned long long* reasons) {
    *reasons = 0x1;  // idle
    return 0;
  };
  EXPECT_THAT(slowness(host()), IsEmpty());
}

TEST_F(GpuHostTest, FindsThrottling) {
  auto found = host();
  found.nvml.gpus[0].throttle_reasons = 0x40;
  found.nvml.gpus[1].throttle_reasons = 0x80;
  EXPECT_THAT(slowness(found), ElementsAre(HasSubstr("too hot"), HasSubstr("power brake")));
  found.nvml.gpus[0].throttle_reasons = 0x4;
  found.nvml.gpus[1].throttle_reasons = 0x2;  // clocks that an administrator has set
  EXPECT_THAT(slowness(found), ElementsAre(HasSubstr("power limit")));
}

TEST_F(GpuHostTest, FindsWhatIsWrongWithTheNetwork) {
  add_adapter("mlx5_0", "1: DOWN");
  EXPECT_THAT(slowness(host(), {{"NCCL_IB_DISABLE", "1"}}),
              ElementsAre(HasSubstr("No port of 1 InfiniBand"), HasSubstr("NCCL_IB_DISABLE is set"),
                          HasSubstr("GPUDirect RDMA is not available")));
  EXPECT_THAT(slowness(host(), {{"NCCL_IB_DISABLE", "0"}}), Not(Contains(HasSubstr("NCCL_IB_DISABLE"))));
  EXPECT_THAT(slowness(host(), {{"NCCL_P2P_DISABLE", "1"}}), Contains(HasSubstr("NCCL_P2P_DISABLE is set")));
}

TEST_F(GpuHostTest, KnowsBothWaysToGpuDirect) {
  add_adapter("mlx5_0", "4: ACTIVE");
  EXPECT_THAT(slowness(host()), ElementsAre(HasSubstr("modprobe nvidia_peermem")));
  write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release");
  EXPECT_THAT(slowness(host()), IsEmpty());
  write("proc/sys/kernel/osrelease", "5.4.0-1100");  // no dmabuf in InfiniBand
  EXPECT_THAT(slowness(host()), ElementsAre(HasSubstr("modprobe nvidia_peermem")));
}

TEST_F(GpuHostTest, FindsLimitsOfTheContainer) {
  add_adapter("mlx5_0", "4: ACTIVE");
  fs::create_directories(root() / "sys/module/nvidia_peermem");
  auto found = host();
  found.memlock_bytes = 64 << 10;
  found.shm_bytes = 64 << 20;
  EXPECT_THAT(slowness(found), ElementsAre(HasSubstr("locked memory is 64 KiB"), HasSubstr("/dev/shm has 64 MiB")));
}

}  // namespace
}  // namespace libtrain::tools
