#include <libtrain/comm/detail/device/gpu_assignment.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/device/visible_gpus.hpp>

#include <fstream>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Uuids = std::vector<std::string>;

constexpr std::string_view kReason = "--device cuda";

RankGpus rank_on(const std::string& host, Uuids uuids, std::optional<int> local_rank = {}) {
  return {.choice = DeviceChoice::automatic,
          .host = host + "\nboot\npid:[1]",
          .host_name = host,
          .local_rank = local_rank,
          .uuids = std::move(uuids),
          .problem = {}};
}

RankGpus rank_without(const std::string& host, const std::string& problem, bool is_broken = false) {
  auto rank = rank_on(host, {});
  rank.problem = problem;
  rank.is_broken = is_broken;
  return rank;
}

std::vector<RankGpus> with_choice(std::vector<RankGpus> ranks, DeviceChoice choice) {
  for (auto& rank : ranks) rank.choice = choice;
  return ranks;
}

std::vector<int> indices(const std::vector<RankGpus>& ranks) {
  return assign_gpus(ranks, kReason).indices;
}

TEST(GpuAssignment, IsTheLaunchersLocalRank) {
  const Uuids all{"A", "B"};
  // The second launcher places ranks in turn on two hosts.
  EXPECT_THAT(
      indices({rank_on("a", all, 0), rank_on("a", all, 1), rank_on("b", {"C", "D"}, 0), rank_on("b", {"C", "D"}, 1)}),
      ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(indices({rank_on("a", all, 1), rank_on("b", {"C", "D"}, 1), rank_on("a", all, 0)}), ElementsAre(1, 1, 0));
}

TEST(GpuAssignment, IsThePositionOnTheHostWithoutALaunchersLocalRank) {
  const Uuids a{"A", "B", "C"};
  const Uuids b{"D", "E", "F"};
  EXPECT_THAT(indices({rank_on("a", a), rank_on("b", b), rank_on("a", a), rank_on("b", b), rank_on("a", a)}),
              ElementsAre(0, 0, 1, 1, 2));
  // If one rank of a host has none, the numbers of the others do not count either.
  EXPECT_THAT(indices({rank_on("a", a, 1), rank_on("a", a)}), ElementsAre(0, 1));
}

TEST(GpuAssignment, IsTheOnlyGpuThatALauncherShowsToEachRank) {
  EXPECT_THAT(indices({rank_on("a", {"A"}, 0), rank_on("a", {"B"}, 1), rank_on("a", {"C"}, 2)}), ElementsAre(0, 0, 0));
}

TEST(GpuAssignment, SharesGpusEvenlyIfThereAreTooFew) {
  const Uuids two{"A", "B"};
  EXPECT_THAT(indices({rank_on("a", two, 0), rank_on("a", two, 1), rank_on("a", two, 2), rank_on("a", two, 3)}),
              ElementsAre(0, 1, 0, 1));
}

TEST(GpuAssignment, DoesNotShareAGpuWhileAnotherIsFree) {
  // A launcher that gives all ranks the local rank 0, and one that shows the GPUs in another order to each rank.
  EXPECT_THAT(indices({rank_on("a", {"A", "B"}, 0), rank_on("a", {"A", "B"}, 0)}), ElementsAre(0, 1));
  EXPECT_THAT(indices({rank_on("a", {"A", "B"}, 0), rank_on("a", {"B", "A"}, 1)}), ElementsAre(0, 0));
}

TEST(GpuAssignment, IsTheCpuIfNoRankHasAGpu) {
  const auto assignment = assign_gpus({rank_without("a", "no driver"), rank_without("b", "no driver")}, kReason);
  EXPECT_THAT(assignment.indices, IsEmpty());
  EXPECT_EQ(assignment.why_cpu, "no driver");
  EXPECT_FALSE(assignment.is_warning);
}

TEST(GpuAssignment, WarnsIfAMachineHasADriverThatCannotBeUsed) {
  const auto assignment = assign_gpus({rank_without("a", "no driver"), rank_without("b", "too old", true)}, kReason);
  EXPECT_THAT(assignment.indices, IsEmpty());
  EXPECT_EQ(assignment.why_cpu, "too old");
  EXPECT_TRUE(assignment.is_warning);
}

TEST(GpuAssignment, IsTheCpuIfThatIsChosenWhateverThereIs) {
  const auto assignment = assign_gpus(with_choice({rank_on("a", {"A"})}, DeviceChoice::cpu), kReason);
  EXPECT_THAT(assignment.indices, IsEmpty());
  EXPECT_EQ(assignment.why_cpu, "");
}

TEST(GpuAssignment, NamesTheRanksThatLackAGpuThatOthersHave) {
  const std::vector<RankGpus> ranks{rank_on("a", {"A"}), rank_without("b", "no driver"), rank_without("b", "no driver"),
                                    rank_without("c", "too old", true)};
  EXPECT_EQ(message_of<EnvironmentError>([&] { assign_gpus(ranks, kReason); }),
            "Only 1 of 4 ranks have a GPU: ranks 1 and 2 on b have no usable GPU: no driver; rank 3 on c has no usable "
            "GPU: too old. Give every rank a GPU, or use --device cpu to train on the CPU.");
}

TEST(GpuAssignment, NamesTheRanksThatLackAGpuThatIsDemanded) {
  const auto ranks = with_choice({rank_without("a", "no driver"), rank_on("b", {"A"})}, DeviceChoice::cuda);
  try {
    assign_gpus(ranks, kReason);
    FAIL() << "nothing was thrown";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(),
                 "A GPU is needed on every rank (--device cuda), but rank 0 on a has no usable GPU: no driver. Correct "
                 "this, or use --device cpu.");
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  }
}

TEST(GpuAssignment, NamesAFewPlacesOfMany) {
  std::vector<RankGpus> ranks;
  for (int host = 0; host < 100; ++host) ranks.push_back(rank_without("node" + std::to_string(host), "no driver"));
  const auto message = message_of<EnvironmentError>(
      [&] { assign_gpus(with_choice(ranks, DeviceChoice::cuda), "backend nccl of --dist-backend"); });
  EXPECT_THAT(message, AllOf(HasSubstr("(backend nccl of --dist-backend), but rank 0 on node0 has"),
                             HasSubstr("rank 3 on node3 has"), Not(HasSubstr("node4")),
                             HasSubstr("and 96 other ranks have none")));
}

TEST(GpuAssignment, RefusesDifferentChoices) {
  auto ranks = with_choice({rank_on("a", {"A"}), rank_on("a", {"A"})}, DeviceChoice::cuda);
  ranks[1].choice = DeviceChoice::cpu;
  EXPECT_EQ(message_of<UsageError>([&] { assign_gpus(ranks, kReason); }),
            "The ranks were started with different devices: rank 0 with --device cuda, rank 1 with --device cpu. Give "
            "all ranks the same.");
}

TEST(GpuAssignment, SendsWhatARankKnows) {
  auto rank = rank_on("node", {"GPU-1", "GPU-2"}, 7);
  EXPECT_EQ(gpus_from_message(to_message(rank)), rank);
  rank = rank_without("node", "tabs\tand\nlines", true);
  rank.choice = DeviceChoice::cuda;
  EXPECT_EQ(gpus_from_message(to_message(rank)), rank);
  for (const auto* message : {"", "1\t2", "9\th\tn\t\t\t0\t", "0\th\tn\tx\t\t0\t"}) {
    EXPECT_THAT(message_of<CommunicationError>([&] { gpus_from_message(message); }), HasSubstr("the same build"));
  }
}

// A driver that shows two GPUs and supports CUDA 13.2, unless a test replaces a function.
CudaDriver driver_of_two() {
  return {.init = [](unsigned int) { return 0; },
          .get_version =
              [](int* version) {
                *version = 13020;
                return 0;
              },
          .count_devices =
              [](int* count) {
                *count = 2;
                return 0;
              },
          .get_device =
              [](int* device, int index) {
                *device = 10 + index;
                return 0;
              },
          .get_name =
              [](char* name, int, int device) {
                name[0] = static_cast<char>('A' + device - 10);
                name[1] = 0;
                return 0;
              },
          .get_uuid =
              [](unsigned char* uuid, int device) {
                for (int byte = 0; byte < 16; ++byte) uuid[byte] = static_cast<unsigned char>(16 * byte + device);
                return 0;
              },
          .get_error_string =
              [](int, const char** text) {
                *text = "the meaning";
                return 0;
              }};
}

VisibleGpus find(const CudaDriver& driver, const char* visible_devices = nullptr) {
  return find_gpus({.driver = &driver, .visible_devices = visible_devices, .needed_cuda = 13000});
}

TEST(VisibleGpus, AreThoseOfTheDriver) {
  const auto found = find(driver_of_two());
  ASSERT_EQ(found.gpus.size(), 2u);
  EXPECT_EQ(found.gpus[0].name, "A");
  EXPECT_EQ(found.gpus[1].name, "B");
  EXPECT_EQ(found.gpus[1].uuid, "GPU-0b1b2b3b-4b5b-6b7b-8b9b-abbbcbdbebfb");
  EXPECT_EQ(found.cuda, 13020);
  EXPECT_EQ(found.problem, "");
}

TEST(VisibleGpus, AreNoneWithoutADriver) {
  const auto found = find_gpus({.why_no_driver = "libcuda.so.1: cannot open", .needed_cuda = 13000});
  EXPECT_EQ(found.problem,
            "CUDA's driver is not installed, or not visible in this container (libcuda.so.1: cannot open)");
  EXPECT_FALSE(found.is_broken);
}

TEST(VisibleGpus, AreNoneInABuildWithoutCuda) {
  const auto driver = driver_of_two();
  const auto found = find_gpus({.driver = &driver, .needed_cuda = 0});
  EXPECT_THAT(found.gpus, IsEmpty());
  EXPECT_THAT(found.problem, HasSubstr("built without CUDA"));
}

TEST(VisibleGpus, AreNoneIfTheDriverIsTooOld) {
  auto driver = driver_of_two();
  driver.get_version = [](int* version) {
    *version = 12040;
    return 0;
  };
  const auto found = find(driver);
  EXPECT_EQ(found.problem,
            "CUDA's driver is too old: it supports CUDA 12.4, and this build needs CUDA 13.0, that is a driver of "
            "release 580 or newer");
  EXPECT_TRUE(found.is_broken);
}

TEST(VisibleGpus, AreNoneIfTheEnvironmentHidesThem) {
  auto driver = driver_of_two();
  driver.init = [](unsigned int) { return 100; };  // CUDA_ERROR_NO_DEVICE
  EXPECT_EQ(find(driver, "").problem, "CUDA_VISIBLE_DEVICES='' hides all GPUs from this process");
  EXPECT_EQ(find(driver, "-1").problem, "CUDA_VISIBLE_DEVICES='-1' hides all GPUs from this process");
  EXPECT_EQ(find(driver, "7").problem, "CUDA_VISIBLE_DEVICES='7' names no GPU of this machine");
  EXPECT_EQ(find(driver).problem, "CUDA's driver finds no GPU in this machine or container");
  EXPECT_FALSE(find(driver, "").is_broken);
  driver = driver_of_two();
  driver.count_devices = [](int* count) {
    *count = 0;
    return 0;
  };
  EXPECT_EQ(find(driver, "").problem, "CUDA_VISIBLE_DEVICES='' hides all GPUs from this process");
}

TEST(VisibleGpus, NameTheCallThatFails) {
  auto driver = driver_of_two();
  driver.init = [](unsigned int) { return 802; };
  EXPECT_EQ(find(driver).problem, "cuInit of CUDA's driver failed with code 802: the meaning");
  EXPECT_TRUE(find(driver).is_broken);
  driver.init = [](unsigned int) { return 34; };
  EXPECT_THAT(find(driver).problem, HasSubstr("stub of the CUDA toolkit"));
  driver = driver_of_two();
  driver.get_uuid = [](unsigned char*, int device) { return device == 11 ? 1 : 0; };
  EXPECT_THAT(find(driver).problem, HasSubstr("device 1: "));
  EXPECT_THAT(find(driver).gpus, IsEmpty());
}

TEST(KernelDriverVersion, IsTheNumberInTheKernelsText) {
  const test::TemporaryFolder folder;
  const auto file = (folder.path() / "version").string();
  const auto version_in = [&](const std::string& line) {
    std::ofstream{file} << line << "\nGCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1)\n";
    return kernel_driver_version(file);
  };
  EXPECT_EQ(version_in("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"),
            "550.54.15");
  EXPECT_EQ(version_in("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root)"),
            "580.65.06");
  EXPECT_EQ(kernel_driver_version((folder.path() / "missing").string()), "");
}

}  // namespace
}  // namespace libtrain::detail
