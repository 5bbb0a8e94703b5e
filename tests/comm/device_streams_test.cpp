// DeviceCommunicator, all of NCCL's communicator but NCCL, on the fake GPU: the order of streams and the lifetime of
// tensors. The host cannot read the memory, streams run late, and freed memory is overwritten and used again at once.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/device/device_communicator.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/comm/detail/staged/staged_communicator.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>

#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/fake_gpu/launcher.hpp>
#include <tests/support/fresh_seed.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using test::BlockedStream;
using test::FakeGraph;
using test::message_of;
using test::NoHostSynchronization;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kMaxStreamWait = 30s;

using Body = std::function<void(Communicator& communicator, const at::Device& device)>;

void on_gpus(int ranks, const Body& body) {
  run_ranks(ranks, [&](Communicator& control) {
    const auto device = test::fake_gpu(control.rank());
    const c10::DeviceGuard on_device(device);
    DeviceCommunicator communicator{
        {std::shared_ptr<void>{}, &control}, test::fake_gpu_launcher(device), {.timeout = kMaxStreamWait}, {}};
    body(communicator, device);
  });
}

at::Tensor filled(const at::Device& device, std::int64_t elements, double value, at::ScalarType type = at::kFloat) {
  return at::full({elements}, value, at::TensorOptions(type).device(device));
}

c10::Stream other_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl{device.type()}.getStreamFromGlobalPool(device);
}

TEST(DeviceStreams, ACollectiveFollowsTheCallersStreamAndTheHostDoesNotWait) {
  on_gpus(2, [](Communicator& communicator, const at::Device& device) {
    const auto tensor = filled(device, 1000, 0);
    communicator.all_reduce(tensor).wait();
    Work work;
    {
      const NoHostSynchronization none;
      const BlockedStream blocked{current_stream(device)};
      const Stopwatch stopwatch;
      tensor.fill_(communicator.rank() + 1);
      work = communicator.all_reduce(tensor);
      EXPECT_FALSE(work.done());
      EXPECT_FALSE(work.times().has_value());
      work.wait();
      tensor.mul_(10);
      EXPECT_FALSE(work.done());
      EXPECT_LT(stopwatch.seconds(), 1.0);
    }
    EXPECT_TRUE(tensor.cpu().equal(at::full({1000}, 30.0F)));
    EXPECT_TRUE(work.done());
    const auto times = work.times();
    ASSERT_TRUE(times.has_value());
    EXPECT_TRUE(times->called <= times->began && times->began <= times->ended);
  });
}

TEST(DeviceStreams, TemporariesMayBeDroppedAfterWait) {
  const test::FakeGpuDelays delays{test::fresh_seed()};
  on_gpus(2, [](Communicator& communicator, const at::Device& device) {
    const auto sum = filled(device, 64, 0);
    for (int step = 0; step < 200; ++step) {
      const auto tensor = filled(device, 64, step + communicator.rank());
      communicator.all_reduce(tensor).wait();
      sum.add_(tensor);
    }
    EXPECT_TRUE(sum.cpu().equal(at::full({64}, 200.0F * 199 + 200)));
  });
}

TEST(DeviceStreams, AnInputMayBeDroppedRightAfterTheCall) {
  const test::FakeGpuDelays delays{test::fresh_seed()};
  on_gpus(2, [](Communicator& communicator, const at::Device& device) {
    const auto total = filled(device, 64, 0);
    for (int step = 0; step < 100; ++step) {
      const auto output = filled(device, 64, -1);
      auto work = communicator.all_reduce(filled(device, 64, step), output, ReduceOp::sum);
      for (int other = 0; other < 3; ++other) filled(device, 64, 1e6);  // would get the input's memory
      work.wait();
      total.add_(output);
    }
    EXPECT_TRUE(total.cpu().equal(at::full({64}, 100.0F * 99)));
  });
}

TEST(DeviceStreams, AWaitInAnotherStreamProtectsTheMemoryOfTheCallingOne) {
  on_gpus(2, [](Communicator& communicator, const at::Device& device) {
    const auto output = filled(device, 64, -1);
    const auto calling = current_stream(device);
    const auto waiting = other_stream(device);
    communicator.all_reduce(output, ReduceOp::maximum).wait();
    auto input = filled(device, 64, 7);
    Work work;
    {
      const BlockedStream blocked{waiting};
      {
        const c10::StreamGuard in_other(waiting);
        output.fill_(0);
        // The collective waits for the blocked stream.
        c10::Event event(device.type());
        event.record(waiting);
        event.block(calling);
      }
      work = communicator.all_reduce(input, output, ReduceOp::sum);
      {
        const c10::StreamGuard in_other(waiting);
        work.wait();
      }
      input.reset();
      for (int other = 0; other < 3; ++other) filled(device, 64, 1e6);
    }
    const c10::StreamGuard in_other(waiting);
    EXPECT_TRUE(output.cpu().equal(at::full({64}, 14.0F)));
  });
}

TEST(DeviceStreams, AveragesOf16BitsAreDividedInTheStream) {
  const test::FakeGpuDelays delays{test::fresh_seed()};
  on_gpus(3, [](Communicator& communicator, const at::Device& device) {
    for (int step = 0; step < 20; ++step) {
      const auto tensor = filled(device, 64, 3 * communicator.rank() + step, at::kBFloat16);
      communicator.all_reduce(tensor, ReduceOp::average).wait();
      EXPECT_TRUE(tensor.cpu().equal(at::full({64}, 3.0 + step, at::kBFloat16)));
    }
  });
}

TEST(DeviceStreams, TensorsInHostMemoryGoOverTheControlCommunicator) {
  on_gpus(2, [](Communicator& communicator, const at::Device& device) {
    EXPECT_TRUE(communicator.supports(at::kCPU));
    const auto on_gpu = filled(device, 8, 1);
    const auto on_host = at::full({8}, 2.0F);
    auto first = communicator.all_reduce(on_gpu);
    auto second = communicator.all_reduce(on_host, ReduceOp::maximum);
    auto third = communicator.broadcast(on_gpu, 1);
    second.wait();
    EXPECT_TRUE(on_host.equal(at::full({8}, 2.0F)));
    first.wait();
    third.wait();
    EXPECT_TRUE(on_gpu.cpu().equal(at::full({8}, 2.0F)));
    EXPECT_THROW(static_cast<void>(communicator.all_reduce(on_host, on_gpu, ReduceOp::sum)), UsageError);
    communicator.barrier();  // still usable
  });
}

TEST(DeviceStreams, AMissedDeadlineEndsLaterCalls) {
  std::atomic<bool> has_failed = false;
  on_gpus(2, [&](Communicator& communicator, const at::Device& device) {
    const auto tensor = filled(device, 8, 1);
    communicator.all_reduce(tensor).wait();
    std::optional<BlockedStream> blocked;
    const bool is_late = communicator.rank() == 1;
    if (is_late) blocked.emplace(current_stream(device));
    auto work = communicator.all_reduce(tensor, ReduceOp::sum,
                                        {.timeout = is_late ? std::chrono::milliseconds(kMaxStreamWait) : 200ms});
    if (is_late) {
      while (!has_failed) std::this_thread::sleep_for(1ms);
      return;
    }
    const auto deadline = Deadline::after(kMaxStreamWait);
    while (!work.done() && !deadline.expired()) std::this_thread::sleep_for(1ms);
    has_failed = true;
    EXPECT_THAT(message_of<CommunicationError>([&] { work.wait(); }), HasSubstr("deadline"));
    EXPECT_THROW(communicator.barrier(), CommunicationError);
  });
}

TEST(DeviceStreams, AStagedBroadcastIsDoneOnItsRootWithTheHosts) {
  const auto device = test::fake_gpu();
  const std::shared_ptr<Communicator> staged =
      std::make_shared<StagedCommunicator>(std::make_shared<SingleCommunicator>(), device);
  const auto work = staged->broadcast(filled(device, 64, 1), 0);
  const BlockedStream blocked{current_stream(device)};
  EXPECT_TRUE(work.done());
}

TEST(DeviceStreams, CollectivesAreReplayedWithTheirGraph) {
  const test::FakeGpuDelays delays{test::fresh_seed()};
  on_gpus(2, [](Communicator& communicator, const at::Device& device) {
    const auto recording = other_stream(device);
    const auto tensor = filled(device, 64, 1);
    communicator.all_reduce(tensor).wait();  // eager before
    c10::impl::VirtualGuardImpl{device.type()}.synchronizeStream(current_stream(device));
    const c10::StreamGuard in_recording(recording);
    tensor.fill_(1);
    FakeGraph graph;
    graph.begin(device);
    EXPECT_TRUE(communicator.is_recording());
    auto work = communicator.all_reduce(tensor);
    auto average = communicator.all_reduce(tensor, ReduceOp::average);
    work.wait();
    average.wait();
    tensor.add_(1);
    graph.end();
    EXPECT_FALSE(communicator.is_recording());
    std::this_thread::sleep_for(250ms);  // of the watchdog
    for (int replay = 0; replay < 3; ++replay) graph.replay();
    EXPECT_TRUE(tensor.cpu().equal(at::full({64}, 15.0F)));  // x -> 2 x + 1
    communicator.all_reduce(tensor).wait();
    EXPECT_TRUE(tensor.cpu().equal(at::full({64}, 30.0F)));
  });
}

}  // namespace
}  // namespace libtrain::detail
