// DeviceCommunicator, all of NCCL's communicator but NCCL: over a launcher that runs collectives in host memory, with a
// CPU for the device and ranks as threads. The order of streams is tested on the fake GPU.

#include <libtrain/comm/detail/device/device_communicator.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kLong = 30s;

// What a test tells the launchers of its ranks, and what it hears of them.
struct Script {
  std::atomic<bool> records = false;
  std::atomic<bool> fails = false;
  std::atomic<bool> refuses_memory = false;
  std::atomic<bool> abort_blocks = false;
  std::atomic<int> aborts = 0;
  std::atomic<int> closes = 0;
  std::atomic<int> leaves = 0;
  std::atomic<int> allocations = 0;
  std::mutex mutex;
  std::string error;

  void report(const std::string& what) {
    const std::lock_guard lock(mutex);
    error = what;
  }
};

class PlainMemory : public DeviceMemory {
 public:
  PlainMemory(std::size_t bytes, std::shared_ptr<Script> script)
      : data_(std::malloc(bytes)), script_(std::move(script)) {
    ++script_->allocations;
  }
  ~PlainMemory() override {
    std::free(data_);
    --script_->allocations;
  }
  void* data() const override { return data_; }

 private:
  void* data_;
  std::shared_ptr<Script> script_;
};

at::Tensor as_tensor(const void* data, std::uint64_t count, DataType type) {
  const auto scalar = type == DataType::bfloat16  ? at::kBFloat16
                      : type == DataType::float16 ? at::kHalf
                      : type == DataType::int64   ? at::kLong
                                                  : at::kFloat;
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(count)}, at::TensorOptions(scalar));
}

class HostLauncher : public DeviceLauncher {
 public:
  HostLauncher(std::shared_ptr<Communicator> host, std::shared_ptr<Script> script)
      : host_(std::move(host)), script_(std::move(script)) {}

  std::string_view name() const override { return "pretended"; }
  at::Device device() const override { return at::kCPU; }

  void launch(const Call& call, const void* input, void* output, const c10::Stream& /*stream*/,
              const Deadline& /*deadline*/) override {
    if (script_->fails) throw CommunicationError("The launch missed its deadline.");
    EXPECT_FALSE(call.op == ReduceOp::average && size_of(*call.type) == 2) << "these are divided by the communicator";
    const auto ranks = static_cast<std::uint64_t>(host_->world_size());
    const auto tensor = [&](const void* data, std::uint64_t count) { return as_tensor(data, count, *call.type); };
    switch (call.kind) {
      case CallKind::all_reduce:
        return host_->all_reduce(tensor(input, call.count), tensor(output, call.count), *call.op).wait();
      case CallKind::reduce:
        return host_
            ->reduce(tensor(input, call.count), output ? tensor(output, call.count) : at::Tensor{}, *call.root,
                     *call.op)
            .wait();
      case CallKind::broadcast:
        return host_->broadcast(tensor(output, call.count), *call.root).wait();
      case CallKind::all_gather:
        return host_->all_gather(tensor(input, call.count), tensor(output, ranks * call.count)).wait();
      case CallKind::reduce_scatter:
        return host_->reduce_scatter(tensor(input, ranks * call.count), tensor(output, call.count), *call.op).wait();
      default:
        return host_->all_to_all(tensor(input, call.count), tensor(output, call.count)).wait();
    }
  }

  std::unique_ptr<DeviceMemory> allocate(std::size_t bytes) override {
    return script_->refuses_memory ? nullptr : std::make_unique<PlainMemory>(bytes, script_);
  }
  bool can_record() const override { return true; }
  bool is_recording(const c10::Stream& /*stream*/) const override { return script_->records; }

  std::string asynchronous_error() override {
    const std::lock_guard lock(script_->mutex);
    return script_->error;
  }
  void abort() noexcept override {
    while (script_->abort_blocks) std::this_thread::sleep_for(1ms);
    ++script_->aborts;
  }
  void close() noexcept override { ++script_->closes; }
  void leave() noexcept override { ++script_->leaves; }

 private:
  std::shared_ptr<Communicator> host_;
  std::shared_ptr<Script> script_;
};

std::unique_ptr<Communicator> connect(Communicator& control, const std::shared_ptr<Script>& script,
                                      OnFailure on_failure = {}, CommunicatorOptions options = {.timeout = kLong}) {
  const auto launcher = [script](Communicator& ranks, const CallOptions& set_up) {
    return std::make_shared<HostLauncher>(ranks.split(0, ranks.rank(), set_up), script);
  };
  return std::make_unique<DeviceCommunicator>(control.split(0, control.rank()), launcher, options,
                                              std::move(on_failure));
}

// Each rank has a communicator of its own over the script.
void on_devices(int ranks, const std::shared_ptr<Script>& script,
                const std::function<void(Communicator& communicator)>& body) {
  run_ranks(ranks, [&](Communicator& control) {
    const auto communicator = connect(control, script);
    body(*communicator);
  });
}

// A tensor that says when its memory is released.
at::Tensor watched_tensor(std::vector<float>& memory, std::atomic<bool>& is_released) {
  return at::from_blob(memory.data(), {static_cast<std::int64_t>(memory.size())}, [&](void*) { is_released = true; });
}

TEST(DeviceCommunicator, CollectivesReachTheLauncher) {
  on_devices(3, std::make_shared<Script>(), [](Communicator& communicator) {
    const auto rank = static_cast<float>(communicator.rank());
    const auto tensor = at::full({4}, rank + 1);
    communicator.all_reduce(tensor).wait();
    EXPECT_TRUE(tensor.equal(at::full({4}, 6.0F)));
    communicator.broadcast(tensor.fill_(rank), 2).wait();
    EXPECT_TRUE(tensor.equal(at::full({4}, 2.0F)));
    communicator.reduce(tensor.fill_(rank), 1, ReduceOp::maximum).wait();
    EXPECT_TRUE(tensor.equal(at::full({4}, communicator.rank() == 1 ? 2.0F : rank)));
    const auto gathered = at::zeros({6});
    communicator.all_gather(at::full({2}, rank), gathered).wait();
    EXPECT_TRUE(gathered.equal(at::tensor({0.0F, 0.0F, 1.0F, 1.0F, 2.0F, 2.0F})));
    const auto part = at::zeros({2});
    communicator.reduce_scatter(gathered, part).wait();
    EXPECT_TRUE(part.equal(at::full({2}, 3 * rank)));
    const auto received = at::zeros({3});
    communicator.all_to_all(at::full({3}, rank), received).wait();
    EXPECT_TRUE(received.equal(at::tensor({0.0F, 1.0F, 2.0F})));
    communicator.all_reduce(at::empty({0})).wait();
    EXPECT_THROW(static_cast<void>(communicator.broadcast(tensor, 3)), UsageError);
    communicator.barrier();
  });
}

// The mean over many elements of result / exact - 1. The exact mean is computed in float64.
double relative_bias(const at::Tensor& result, const at::Tensor& exact) {
  return (result.to(at::kDouble) / exact - 1).mean().item<double>();
}

TEST(DeviceCommunicator, AveragesOf16BitsAreUnbiasedForEveryNumberOfRanks) {
  for (const int ranks : {3, 5, 6, 7}) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(text(ranks, " ranks, ", type));
      constexpr std::int64_t kElements = 1 << 16;
      std::vector<at::Tensor> inputs;
      auto exact = at::zeros({kElements}, at::kDouble);
      for (int rank = 0; rank < ranks; ++rank) {
        inputs.push_back(at::rand({kElements}).add(1).to(type));
        exact += inputs.back().to(at::kDouble) / ranks;
      }
      on_devices(ranks, std::make_shared<Script>(), [&](Communicator& communicator) {
        const auto& input = inputs[static_cast<std::size_t>(communicator.rank())];
        const auto output = at::empty_like(input);
        communicator.all_reduce(input, output, ReduceOp::average).wait();
        EXPECT_LT(std::abs(relative_bias(output, exact)), 1e-4);
        const bool is_root = communicator.rank() == 1;
        communicator.reduce(input, is_root ? output.zero_() : at::Tensor{}, 1, ReduceOp::average).wait();
        if (is_root) {
          EXPECT_LT(std::abs(relative_bias(output, exact)), 1e-4);
        }
        const auto length = kElements / ranks;
        const auto part = at::empty({length}, type);
        communicator.reduce_scatter(input.narrow(0, 0, length * ranks), part, ReduceOp::average).wait();
        EXPECT_LT(std::abs(relative_bias(part, exact.narrow(0, length * communicator.rank(), length))), 1e-4);
      });
    }
  }
}

TEST(DeviceCommunicator, WaitReleasesTensorsAtOnce) {
  on_devices(2, std::make_shared<Script>(), [](Communicator& communicator) {
    std::vector<float> memory(4);
    std::atomic<bool> is_released = false;
    auto work = communicator.all_reduce(watched_tensor(memory, is_released));
    EXPECT_FALSE(is_released);
    work.wait();
    EXPECT_TRUE(is_released);
  });
}

TEST(DeviceCommunicator, TheWatchdogReleasesTensorsWithoutAWait) {
  on_devices(2, std::make_shared<Script>(), [](Communicator& communicator) {
    std::vector<float> memory(4);
    std::atomic<bool> is_released = false;
    static_cast<void>(communicator.all_reduce(watched_tensor(memory, is_released)));
    const auto deadline = Deadline::after(kLong);
    while (!is_released && !deadline.expired()) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(is_released);
  });
}

TEST(DeviceCommunicator, AFailedLaunchNamesTheLabelAndHoldsItsTensorsUntilTheAbortHasReturned) {
  const auto script = std::make_shared<Script>();
  std::atomic<int> failed = 0;
  on_devices(2, script, [&](Communicator& communicator) {
    communicator.barrier();
    script->fails = true;
    script->abort_blocks = true;
    communicator.label_calls(std::make_shared<const std::string>("bucket 3"));
    std::vector<float> memory(4);
    std::atomic<bool> is_released = false;
    EXPECT_THAT(message_of<CommunicationError>(
                    [&] { static_cast<void>(communicator.all_reduce(watched_tensor(memory, is_released))); }),
                AllOf(HasSubstr("all_reduce of 4 float32 (sum) on cpu for bucket 3 (collective number 0) failed"),
                      HasSubstr("missed its deadline")));
    std::this_thread::sleep_for(300ms);
    EXPECT_FALSE(is_released);
    if (++failed == 2) script->abort_blocks = false;
    const auto deadline = Deadline::after(kLong);
    while (!is_released && !deadline.expired()) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(is_released);
    EXPECT_THROW(communicator.barrier(), CommunicationError);
    EXPECT_EQ(communicator.recent_collectives().back().state, CollectiveRecord::State::failed);
  });
  EXPECT_EQ(script->aborts, 2);
}

TEST(DeviceCommunicator, RanksWithDifferentLabelsAreTold) {
  on_devices(2, std::make_shared<Script>(), [](Communicator& communicator) {
    communicator.label_calls(std::make_shared<const std::string>(text("bucket ", communicator.rank())));
    EXPECT_THAT(
        message_of<CommunicationError>([&] { static_cast<void>(communicator.all_reduce(at::ones({4}))); }),
        AllOf(HasSubstr("rank 0 called all_reduce of 4 float32 (sum) for bucket 0"), HasSubstr("for bucket 1")));
  });
}

TEST(DeviceCommunicator, KeepsRecordsWithStatesAndTimes) {
  on_devices(2, std::make_shared<Script>(), [](Communicator& communicator) {
    const auto before = WorkTimes::Clock::now();
    communicator.label_calls(std::make_shared<const std::string>("bucket 3"));
    auto work = communicator.all_reduce(at::ones({4}));
    work.wait();
    EXPECT_TRUE(work.done());
    const auto times = work.times();
    ASSERT_TRUE(times.has_value());
    EXPECT_TRUE(before <= times->called && times->called <= times->began && times->began <= times->ended &&
                times->ended <= WorkTimes::Clock::now());
    const auto record = communicator.recent_collectives().back();
    EXPECT_EQ(record.what, "all_reduce of 4 float32 (sum) on cpu for bucket 3");
    EXPECT_EQ(record.sequence, 0u);
    EXPECT_EQ(record.state, CollectiveRecord::State::done);
    EXPECT_EQ(record.times.ended, times->ended);
    for (int call = 0; call < 150; ++call) communicator.all_reduce(at::ones({4})).wait();
    EXPECT_EQ(communicator.recent_collectives().size(), 100u);
    EXPECT_EQ(communicator.recent_collectives().back().sequence, 150u);
  });
}

TEST(DeviceCommunicator, RecordedCollectivesAreNeitherComparedNorWatched) {
  const auto script = std::make_shared<Script>();
  on_devices(2, script, [&](Communicator& communicator) {
    EXPECT_TRUE(communicator.is_recordable());
    EXPECT_FALSE(communicator.is_recording());
    auto eager = communicator.all_reduce(at::ones({4}));
    const auto exchanges = communicator.recent_collectives().size();
    communicator.barrier();
    script->records = true;
    EXPECT_TRUE(communicator.is_recording());
    EXPECT_THAT(message_of<UsageError>([&] { eager.wait(); }), HasSubstr("before the recording"));
    const auto tensor = at::ones({4});
    auto work = communicator.all_reduce(tensor, ReduceOp::sum, {.timeout = 1ms});
    EXPECT_EQ(communicator.recent_collectives().size(), exchanges + 2) << "the barrier and the collective itself";
    work.wait();
    EXPECT_FALSE(work.done());
    EXPECT_FALSE(work.times().has_value());
    EXPECT_THAT(communicator.recent_collectives().back().what, HasSubstr("(recorded into a graph)"));
    EXPECT_EQ(communicator.recent_collectives().back().state, CollectiveRecord::State::done);
    std::this_thread::sleep_for(300ms);      // of the watchdog, for the deadline that has passed
    communicator.all_reduce(tensor).wait();  // still recording on both ranks
    static std::atomic<int> ready = 0;
    ++ready;
    while (ready < 2) std::this_thread::yield();
    script->records = false;
    EXPECT_THAT(message_of<UsageError>([&] { work.wait(); }), HasSubstr("outside of the recording"));
    eager.wait();
    communicator.barrier();
  });
}

TEST(DeviceCommunicator, LongBuffersAreRegisteredAndOutliveTheCommunicator) {
  const auto script = std::make_shared<Script>();
  run_ranks(2, [&](Communicator& control) {
    auto communicator = connect(control, script);
    auto kept = communicator->allocate(1 << 20, at::kFloat);
    EXPECT_EQ(kept.sum().item<float>(), 0.0F);
    auto dropped = communicator->allocate(1 << 20, at::kFloat);
    communicator->allocate(10, at::kFloat);  // ordinary memory
    communicator->all_reduce(dropped.fill_(1)).wait();
    control.barrier();
    EXPECT_EQ(script->allocations, 4);
    control.barrier();
    dropped.reset();
    const auto deadline = Deadline::after(kLong);
    while (script->allocations > 2 && !deadline.expired()) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(script->allocations, 2);
    communicator.reset();
    kept.fill_(3);
    EXPECT_EQ(kept.sum().item<float>(), 3.0F * (1 << 20));
  });
  EXPECT_EQ(script->allocations, 0);
  script->refuses_memory = true;
  on_devices(1, script, [](Communicator& communicator) {
    EXPECT_EQ(communicator.allocate(1 << 20, at::kFloat).numel(), 1 << 20);
  });
}

TEST(DeviceCommunicator, TheListenerHearsOfAFailureBeforeTheOwnerAndBeforeTheAbort) {
  const auto script = std::make_shared<Script>();
  run_ranks(1, [&](Communicator& control) {
    std::mutex mutex;
    std::vector<std::string> heard;
    std::promise<void> all_heard;
    const auto hear = [&](const std::string& who) {
      const std::lock_guard lock(mutex);
      heard.push_back(text(who, " after ", script->aborts.load(), " aborts"));
      if (heard.size() == 4) all_heard.set_value();
    };
    const auto communicator = connect(control, script, [&](const std::string& reason) { hear("owner: " + reason); });
    communicator->on_background_failure([&](const std::string& reason) { hear("listener: " + reason); });
    const auto part = communicator->split(0, 0);
    script->abort_blocks = true;
    script->report("lost");
    ASSERT_EQ(all_heard.get_future().wait_for(kLong), std::future_status::ready);
    script->abort_blocks = false;
    std::ranges::sort(heard);
    EXPECT_THAT(heard, ElementsAre("listener: lost after 0 aborts", "listener: lost after 0 aborts",
                                   "owner: lost after 0 aborts", "owner: lost after 0 aborts"));
  });
}

TEST(DeviceCommunicator, RanksCloseTogether) {
  const auto script = std::make_shared<Script>();
  on_devices(3, script, [](Communicator& communicator) { communicator.all_reduce(at::ones({4})).wait(); });
  EXPECT_EQ(script->closes, 3);
  EXPECT_EQ(script->leaves + script->aborts, 0);
}

TEST(DeviceCommunicator, ARankWhosePeersDoNotCloseLeaves) {
  const auto script = std::make_shared<Script>();
  run_ranks(2, [&](Communicator& control) {
    auto communicator = connect(control, script);
    if (control.rank() == 0) {
      const Stopwatch stopwatch;
      communicator.reset();
      EXPECT_LT(stopwatch.seconds(), 8.0);
    }
    control.barrier();
  });
  EXPECT_EQ(script->leaves, 2);
  EXPECT_EQ(script->closes + script->aborts, 0);
}

}  // namespace
}  // namespace libtrain::detail
