#include <libtrain/comm/detail/nccl/cuda_errors.hpp>

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/detail/machine.hpp>

namespace libtrain::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Codes and texts are those of CUDA 13's driver_types.h and cudaGetErrorString.
TEST(CudaErrors, EachHasAdvice) {
  const std::pair<int, const char*> expected[] = {{2, "smaller batch"},
                                                  {46, "exclusive mode"},
                                                  {35, "update the driver"},
                                                  {100, "CUDA_VISIBLE_DEVICES"},
                                                  {214, "last checkpoint"},
                                                  {220, "another host"},
                                                  {721, "hardware error"},
                                                  {719, "Xid"},
                                                  {700, "CUDA_LAUNCH_BLOCKING"},
                                                  {710, "a label"},
                                                  {702, "display"},
                                                  {802, "fabric manager"},
                                                  {803, "libcuda"}};
  for (const auto& [code, words] : expected) {
    ASSERT_NE(cuda_advice(code), nullptr) << code;
    EXPECT_THAT(std::string(cuda_advice(code)->advice), HasSubstr(words)) << code;
    EXPECT_EQ(find_cuda_advice(cuda_advice(code)->meaning), cuda_advice(code)) << code;
  }
  EXPECT_EQ(cuda_advice(1), nullptr);
}

TEST(CudaErrors, AMessageOfLibTorchGetsOneSentenceWithRankHostAndGpu) {
  const auto message = with_cuda_advice(
      "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously reported\n", 3, 2);
  EXPECT_THAT(message, AllOf(HasSubstr("CUDA error: uncorrectable ECC error encountered. GPU 2 of rank 3 on " +
                                       host_name() + " has lost data"),
                             HasSubstr("Xid")));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(CudaErrors, AMessageOfNcclIsUnderstood) {
  const auto message = with_cuda_advice(
      "ncclCommInitRankConfig failed on rank 1 with code 1: unhandled cuda error; Cuda failure 2 'out of memory'.", 1,
      0);
  EXPECT_THAT(message, AllOf(HasSubstr("ncclCommInitRankConfig"), HasSubstr("'out of memory'. GPU 0 of rank 1 on "),
                             HasSubstr("nvidia-smi")));
}

TEST(CudaErrors, OtherMessagesStayAsTheyAre) {
  EXPECT_EQ(with_cuda_advice("a peer left\nsecond line", 0, 0), "a peer left\nsecond line");
  EXPECT_EQ(find_cuda_advice("everything is fine"), nullptr);
}

TEST(CudaErrors, FaultsOfTheMachineAreToldFromFaultsOfTheProgram) {
  EXPECT_TRUE(cuda_advice(35)->is_of_machine);
  EXPECT_TRUE(cuda_advice(214)->is_of_machine);
  EXPECT_FALSE(cuda_advice(710)->is_of_machine);
}

}  // namespace
}  // namespace libtrain::detail
