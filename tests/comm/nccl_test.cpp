// NCCL on this machine's GPU with one rank, staging with several ranks that share it. Tests without a GPU run
// everywhere.

#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/device/visible_gpus.hpp>
#include <libtrain/comm/detail/nccl/connect_nccl.hpp>
#include <libtrain/comm/detail/nccl/cuda_library.hpp>
#include <libtrain/comm/detail/nccl/nccl_check.hpp>
#include <libtrain/comm/detail/nccl/nccl_types.hpp>
#include <libtrain/comm/detail/nccl/nccl_version.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/comm/detail/staged/staged_communicator.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>

#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

using detail::to_nccl;
using test::CapturedLog;
using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::minimum, ReduceOp::maximum, ReduceOp::product, ReduceOp::average};
const at::Device kGpu{at::kCUDA, 0};

// Before any test of this program asks LibTorch for CUDA, as torch::manual_seed() does.
[[maybe_unused]] const bool kCudaIsLoaded = !detail::visible_gpus().gpus.empty() && detail::load_cuda_library().empty();

// A single rank, the only possible number on a machine with one GPU, gets the same result from every operation.
static_assert(to_nccl(ReduceOp::sum) == ncclSum);
static_assert(to_nccl(ReduceOp::average) == ncclAvg);
static_assert(to_nccl(ReduceOp::minimum) == ncclMin);
static_assert(to_nccl(ReduceOp::maximum) == ncclMax);
static_assert(to_nccl(ReduceOp::product) == ncclProd);
static_assert(to_nccl(DataType::float32) == ncclFloat32);
static_assert(to_nccl(DataType::float64) == ncclFloat64);
static_assert(to_nccl(DataType::float16) == ncclFloat16);
static_assert(to_nccl(DataType::bfloat16) == ncclBfloat16);
static_assert(to_nccl(DataType::int32) == ncclInt32);
static_assert(to_nccl(DataType::int64) == ncclInt64);
static_assert(to_nccl(DataType::uint8) == ncclUint8);

// Work that is enqueued to the current stream after this waits for this time.
template <int milliseconds>
void occupy_stream() {
  C10_CUDA_CHECK(cudaLaunchHostFunc(
      c10::cuda::getCurrentCUDAStream(),
      [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }, nullptr));
}

at::Tensor pattern(std::int64_t size, at::ScalarType type) {
  return torch::arange(size, at::kLong).remainder(7).add(1).to(type);
}

TEST(NcclCheck, NamesTheCallTheCodeItsMeaningAndTheRank) {
  const auto fail = [] { return ncclInvalidArgument; };
  EXPECT_THAT(message_of<CommunicationError>([&] { LIBTRAIN_CHECK_NCCL(fail(), 3); }),
              AllOf(HasSubstr("fail failed"), HasSubstr("rank 3"), HasSubstr("code 4"), HasSubstr("invalid argument")));
}

TEST(NcclCheck, BeingUnderWayIsNoFailure) {
  LIBTRAIN_CHECK_NCCL(ncclInProgress, 0);
  LIBTRAIN_CHECK_NCCL(ncclSuccess, 0);
}

TEST(NcclConnect, LoadsTheLibraryItWasBuiltWith) {
  EXPECT_EQ(detail::nccl_backend().why_unavailable(Launch{}), "");
  EXPECT_EQ(detail::nccl_versions().loaded, detail::nccl_versions().built);
}

TEST(NcclConnect, ARankWithoutItsGpuEndsAllRanksWithTheReason) {
  run_ranks(2, [](Communicator& communicator) {
    const at::Device absent{at::kCUDA, 99};
    const auto device = communicator.rank() == 0 ? absent : at::Device{at::kCPU};
    EXPECT_THAT(message_of<EnvironmentError>([&] { detail::connect_nccl(communicator, device); }),
                AllOf(HasSubstr("failed on rank 0"), HasSubstr("his process sees")));
    EXPECT_THAT(message_of<EnvironmentError>([&] { detail::connect_nccl(communicator, at::kCPU); }),
                HasSubstr("not cpu"));
    communicator.barrier();  // still usable
  });
}

class NcclOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "not run: this machine has no GPU";
    communicator = detail::connect_nccl(control, kGpu, {.timeout = std::chrono::seconds(60)});
  }

  detail::SingleCommunicator control;
  std::shared_ptr<Communicator> communicator;
};

TEST_F(NcclOnGpu, OneRankGetsItsOwnValuesFromEveryReduction) {
  EXPECT_EQ(communicator->backend(), "nccl");
  for (const auto type : kTypes) {
    for (const std::int64_t size : {0, 1, 17, 1021, 1 << 20}) {
      for (const auto op : kOps) {
        if (op == ReduceOp::average && !at::isFloatingType(type)) continue;
        const auto expected = pattern(size, type);
        const auto tensor = expected.to(kGpu);
        communicator->all_reduce(tensor, op).wait();
        EXPECT_TRUE(torch::equal(tensor.cpu(), expected));
        const auto output = torch::zeros_like(tensor);
        communicator->all_reduce(tensor, output, op).wait();
        EXPECT_TRUE(torch::equal(output.cpu(), expected));
        communicator->reduce(tensor, output.zero_(), 0, op).wait();
        EXPECT_TRUE(torch::equal(output.cpu(), expected));
        communicator->reduce_scatter(tensor, output.zero_(), op).wait();
        EXPECT_TRUE(torch::equal(output.cpu(), expected));
      }
    }
  }
}

TEST_F(NcclOnGpu, OneRankGetsItsOwnValuesFromEveryExchange) {
  for (const auto type : kTypes) {
    for (const std::int64_t size : {0, 1, 17, 1021, 1 << 20}) {
      const auto expected = pattern(size, type);
      const auto tensor = expected.to(kGpu);
      communicator->broadcast(tensor, 0).wait();
      EXPECT_TRUE(torch::equal(tensor.cpu(), expected));
      const auto output = torch::zeros_like(tensor);
      communicator->all_gather(tensor, output).wait();
      EXPECT_TRUE(torch::equal(output.cpu(), expected));
      communicator->all_to_all(tensor, output.zero_()).wait();
      EXPECT_TRUE(torch::equal(output.cpu(), expected));
    }
  }
}

TEST_F(NcclOnGpu, ControlSplitAndAllocateWork) {
  communicator->barrier();
  EXPECT_EQ(communicator->all_gather_bytes("me"), std::vector<std::string>{"me"});
  EXPECT_EQ(communicator->broadcast_bytes("me", 0), "me");
  const auto part = communicator->split(1, 0);
  const auto tensor = part->allocate(100, at::kFloat);
  EXPECT_EQ(tensor.device(), kGpu);
  part->all_reduce(tensor.fill_(2)).wait();
  EXPECT_EQ(tensor.sum().item<float>(), 200.0f);
}

TEST_F(NcclOnGpu, ACollectiveFollowsTheCallersStreamAndTheWaiterFollowsIt) {
  const auto input = torch::zeros({1 << 20}, kGpu);
  const auto output = torch::zeros_like(input);
  communicator->all_reduce(input).wait();  // connects, and loads kernels, which may wait for the GPU
  const c10::cuda::CUDAStreamGuard stream{c10::cuda::getStreamFromPool(false, 0)};
  occupy_stream<500>();
  input.fill_(3);
  auto work = communicator->all_reduce(input, output, ReduceOp::sum);
  EXPECT_FALSE(work.done());
  work.wait();
  EXPECT_EQ(output.mean().item<float>(), 3.0f);
  EXPECT_TRUE(work.done());
}

TEST_F(NcclOnGpu, BadArgumentsAreUsageErrors) {
  EXPECT_THROW(static_cast<void>(communicator->all_reduce(torch::ones({4}, at::kMeta))), UsageError);
  EXPECT_THROW(static_cast<void>(communicator->all_reduce(torch::ones({4}, at::TensorOptions(kGpu).dtype(at::kInt)),
                                                          ReduceOp::average)),
               UsageError);
  EXPECT_THROW(static_cast<void>(communicator->broadcast(torch::ones({4}, kGpu), 1)), UsageError);
  communicator->all_reduce(torch::ones({4}, kGpu)).wait();  // still usable
}

TEST_F(NcclOnGpu, TensorsInHostMemoryGoOverTheControlCommunicator) {
  const auto tensor = torch::ones({4});
  communicator->all_reduce(tensor).wait();
  EXPECT_TRUE(torch::equal(tensor, torch::ones({4})));
}

TEST_F(NcclOnGpu, TimesAreThoseOfTheGpu) {
  const auto tensor = torch::ones({1 << 20}, kGpu);
  communicator->all_reduce(tensor).wait();
  c10::cuda::device_synchronize();
  const auto before = WorkTimes::Clock::now();
  occupy_stream<100>();
  auto work = communicator->all_reduce(tensor);
  EXPECT_FALSE(work.times().has_value());
  work.wait();
  c10::cuda::device_synchronize();
  const auto times = work.times();
  ASSERT_TRUE(times.has_value());
  EXPECT_GE(times->called, before);
  EXPECT_GE(times->ended - times->called, std::chrono::milliseconds(95));
  EXPECT_LE(times->ended, WorkTimes::Clock::now());
}

// While the watchdog queries the events of earlier collectives on its own thread.
TEST_F(NcclOnGpu, ARecordingIsNotDisturbedAndIsReplayed) {
  const c10::cuda::CUDAStreamGuard in_stream{c10::cuda::getStreamFromPool(false, 0)};
  const auto stream = in_stream.current_stream().stream();
  const auto tensor = torch::ones({1 << 20}, kGpu);
  communicator->all_reduce(tensor).wait();
  occupy_stream<500>();
  static_cast<void>(communicator->all_reduce(tensor));
  EXPECT_FALSE(communicator->is_recording());
  C10_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_TRUE(communicator->is_recording());
  auto work = communicator->all_reduce(tensor);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  work.wait();
  cudaGraph_t graph = nullptr;
  C10_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  C10_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  tensor.fill_(5);
  for (int replay = 0; replay < 3; ++replay) C10_CUDA_CHECK(cudaGraphLaunch(executable, stream));
  EXPECT_EQ(tensor.mean().item<float>(), 5.0f);
  C10_CUDA_CHECK(cudaGraphExecDestroy(executable));
  C10_CUDA_CHECK(cudaGraphDestroy(graph));
  communicator->all_reduce(tensor).wait();  // still usable
}

TEST_F(NcclOnGpu, AMissedDeadlineIsToldAndEndsLaterCalls) {
  std::promise<std::string> told;
  const auto watched =
      detail::connect_nccl(control, kGpu, {}, [&](const std::string& reason) { told.set_value(reason); });
  const auto tensor = torch::ones({8}, kGpu);
  watched->all_reduce(tensor).wait();
  occupy_stream<2000>();
  auto work = watched->all_reduce(tensor, ReduceOp::sum, {.timeout = std::chrono::milliseconds(200)});
  auto reason = told.get_future();
  ASSERT_EQ(reason.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_THAT(reason.get(), AllOf(HasSubstr("all_reduce of 8 float32 (sum)"), HasSubstr("deadline")));
  EXPECT_THROW(work.wait(), CommunicationError);
  EXPECT_THROW(watched->barrier(), CommunicationError);
}

TEST_F(NcclOnGpu, AbortEndsLaterCalls) {
  communicator->abort("enough", ExitCode::communication);
  EXPECT_EQ(message_of<CommunicationError>([&] { communicator->all_reduce(torch::ones({8}, kGpu)).wait(); }), "enough");
}

TEST_F(NcclOnGpu, RanksThatShareItGoThroughHostMemoryWithOneWarning) {
  const CapturedLog log;
  run_ranks(3, [](Communicator& host) {
    const auto shared = detail::connect_nccl(host, kGpu);
    EXPECT_EQ(shared->backend(), "staged threads");
    const auto tensor = torch::full({1000}, host.rank() + 1, at::TensorOptions(kGpu).dtype(at::kFloat));
    std::vector<Work> works;
    for (int call = 0; call < 4; ++call) works.push_back(shared->all_reduce(tensor));
    works.back().wait();
    EXPECT_EQ(tensor[999].item<float>(), 6.0f * std::pow(3.0f, 3.0f));
  });
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("ranks 0, 1, 2 share"), HasSubstr("GPU-"))));
}

// StagedCommunicator on a GPU, where copies run while the host goes on.
class StagedOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "not run: this machine has no GPU";
  }

  static std::unique_ptr<Communicator> stage(Communicator& host) {
    return std::make_unique<detail::StagedCommunicator>(host.split(0, host.rank()), kGpu);
  }

  static at::Tensor filled(std::int64_t size, float value) {
    return torch::full({size}, value, at::TensorOptions(kGpu).dtype(at::kFloat));
  }
};

TEST_F(StagedOnGpu, MessagesOfManyPiecesArriveWhole) {
  run_ranks(3, [](Communicator& host) {
    const auto owner = stage(host);
    auto& staged = *owner;
    for (const std::int64_t size : {3'000'001, 3 << 20}) {
      const auto tensor = filled(size, static_cast<float>(host.rank() + 1));
      for (int call = 0; call < 3; ++call) staged.all_reduce(tensor).wait();
      EXPECT_TRUE(torch::equal(tensor.cpu(), torch::full({size}, 54.0f)));
      const auto sent = filled(size, static_cast<float>(host.rank()));
      staged.broadcast(sent, 2).wait();
      EXPECT_TRUE(torch::equal(sent.cpu(), torch::full({size}, 2.0f)));
    }
  });
}

TEST_F(StagedOnGpu, AResultFollowsTheCallersStreamAndTheWaiterFollowsIt) {
  run_ranks(2, [](Communicator& host) {
    const auto owner = stage(host);
    auto& staged = *owner;
    const auto tensor = filled(1 << 20, 3);
    c10::cuda::device_synchronize();
    Work work;
    {
      const c10::cuda::CUDAStreamGuard callers{c10::cuda::getStreamFromPool(false, 0)};
      if (host.rank() == 1) {
        occupy_stream<500>();
        tensor.fill_(7);
      }
      work = staged.broadcast(tensor, 0);
    }
    const c10::cuda::CUDAStreamGuard waiters{c10::cuda::getStreamFromPool(false, 0)};
    work.wait();
    const auto copy = tensor.clone();
    c10::cuda::device_synchronize();
    EXPECT_EQ(copy.min().item<float>(), 3.0f);
    EXPECT_EQ(tensor.max().item<float>(), 3.0f);
    EXPECT_TRUE(work.done());
  });
}

}  // namespace
}  // namespace libtrain
