#include <libtrain/comm/detail/nccl/shared_gpus.hpp>

#include <gtest/gtest.h>

namespace libtrain::detail {
namespace {

TEST(SharedGpus, AreNoneWhereEachRankHasItsOwn) {
  EXPECT_EQ(describe_shared_gpus({{"a", "GPU-1", "H200"}, {"a", "GPU-2", "H200"}, {"b", "GPU-3", "H200"}}), "");
}

TEST(SharedGpus, AreNamedWithTheirRanks) {
  EXPECT_EQ(describe_shared_gpus({{"a", "GPU-1", "H200"},
                                  {"b", "GPU-2", "A100"},
                                  {"a", "GPU-1", "H200"},
                                  {"b", "GPU-2", "A100"},
                                  {"b", "GPU-3", "A100"}}),
            "ranks 0, 2 share H200 GPU-1 of host a; ranks 1, 3 share A100 GPU-2 of host b");
}

TEST(SharedGpus, AreFoundAcrossContainersOfOneMachine) {
  EXPECT_EQ(describe_shared_gpus({{"pod-1", "GPU-1", "H200"}, {"pod-2", "GPU-1", "H200"}}),
            "ranks 0, 1 share H200 GPU-1 of host pod-1");
}

TEST(SharedGpus, MayBeSharedByRanksThatNcclTakesForRanksOfOtherHosts) {
  EXPECT_EQ(describe_shared_gpus({{"a", "GPU-1", "H200", "r0"}, {"a", "GPU-1", "H200", "r1"}}), "");
  EXPECT_EQ(describe_shared_gpus({{"a", "MIG-1", "H200 MIG 1g", "", "boot 0:1:0"},
                                  {"a", "MIG-2", "H200 MIG 1g", "", "boot 0:1:0"},
                                  {"a", "MIG-3", "H200 MIG 1g", "", "boot 0:2:0"}}),
            "ranks 0, 1 have slices of H200 MIG 1g boot 0:1:0 of host a");
  EXPECT_EQ(describe_shared_gpus({{"a", "GPU-1", "H200", "r0"}, {"a", "GPU-1", "H200", "r0"}}),
            "ranks 0, 1 share H200 GPU-1 of host a");
}

TEST(SharedGpus, IdentitiesSurviveTheExchange) {
  const auto gpu =
      gpu_from_line(to_line({.host = "node-7", .uuid = "GPU-00ff", .name = "NVIDIA H200 NVL", .nccl_host = "r1"}));
  EXPECT_EQ(gpu.host, "node-7");
  EXPECT_EQ(gpu.uuid, "GPU-00ff");
  EXPECT_EQ(gpu.name, "NVIDIA H200 NVL");
  EXPECT_EQ(gpu.nccl_host, "r1");
  EXPECT_EQ(gpu_from_line(to_line({.name = "H200"})).nccl_host, "");
}

}  // namespace
}  // namespace libtrain::detail
