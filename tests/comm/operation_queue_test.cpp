// Who runs the operations of a queue, and that none is forgotten.

#include <libtrain/comm/operation_queue.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/host_engine.hpp>
#include <libtrain/comm/threads/thread_group.hpp>
#include <libtrain/comm/threads/thread_transport.hpp>

namespace libtrain::detail {
namespace {

constexpr std::chrono::seconds kLong{30};
// More than it takes until the next caller is expected to run its operation itself.
constexpr int kMany = 100;

// A group of one.
class LoneTransport : public ThreadTransport {
 public:
  explicit LoneTransport(bool interruptible)
      : ThreadTransport(std::make_shared<ThreadGroup>(1), 0), interruptible_(interruptible) {}
  bool interruptible() const override { return interruptible_; }

 private:
  const bool interruptible_;
};

// A queue whose communication thread starts when a test says so: without it callers run what they wait for.
class TestedQueue {
 public:
  explicit TestedQueue(bool interruptible = true)
      : queue_(std::make_shared<OperationQueue>(std::make_unique<LoneTransport>(interruptible), kLong)) {}

  ~TestedQueue() {
    if (!thread_.joinable()) start();
    queue_->stop();
    thread_.join();
  }

  TestedQueue(const TestedQueue&) = delete;  // one thread, one join
  TestedQueue& operator=(const TestedQueue&) = delete;

  void start() {
    thread_ = std::thread{[queue = queue_] { queue->serve(); }};
  }

  std::shared_ptr<Operation> submit(std::function<void()> action = [] {}) {
    auto operation =
        std::make_shared<Operation>(Call{.kind = CallKind::barrier}, Arrival{}, Deadline::after(kLong),
                                    [action = std::move(action)](HostTransport&, const Patience&) { action(); });
    operation->queue = queue_;
    queue_->submit(operation);
    return operation;
  }

  // Operations whose caller waits for each at once.
  void run_by_caller(int count) {
    for (int index = 0; index < count; ++index) submit()->wait();
  }

  // Becomes ready when an operation that nobody waits for is run, after all that have been submitted before it.
  std::future<void> submit_unattended() {
    const auto promise = std::make_shared<std::promise<void>>();
    auto ran = promise->get_future();
    submit([promise] { promise->set_value(); });
    return ran;
  }

 private:
  const std::shared_ptr<OperationQueue> queue_;
  std::thread thread_;
};

bool comes(const std::future<void>& event) {
  return event.wait_for(kLong) == std::future_status::ready;
}

// Not sleep: the time passes for the communication thread alone.
void let_pass(std::chrono::microseconds time) {
  const Stopwatch stopwatch;
  while (stopwatch.seconds() < std::chrono::duration<double>(time).count()) std::this_thread::yield();
}

TEST(OperationQueue, RunsWhatNobodyWaitsForAfterCallersHaveRunMany) {
  TestedQueue queue;
  queue.run_by_caller(kMany);
  queue.start();
  EXPECT_TRUE(comes(queue.submit_unattended()));
  // In all states in which the communication thread may be: before and in its naps, between them, and sound asleep.
  for (const int microseconds : {0, 50, 300, 500, 700, 1500, 2500, 10000}) {
    queue.run_by_caller(kMany);
    let_pass(std::chrono::microseconds(microseconds));
    EXPECT_TRUE(comes(queue.submit_unattended())) << "after " << microseconds << " microseconds";
  }
}

TEST(OperationQueue, RunsWhatNobodyWaitsForOneByOne) {
  TestedQueue queue;
  queue.run_by_caller(kMany);
  queue.start();
  for (int index = 0; index < kMany; ++index) {
    ASSERT_TRUE(comes(queue.submit_unattended())) << index;
    if (index % 3 == 0) queue.run_by_caller(1 + index % 7);
  }
}

TEST(OperationQueue, KeepsTheOrder) {
  std::vector<int> order;
  TestedQueue queue;
  queue.run_by_caller(kMany);
  queue.start();
  for (int index = 0; index < kMany; ++index) {
    const auto operation = queue.submit([&order, index] { order.push_back(index); });
    if (index % 4 == 0) operation->wait();
  }
  ASSERT_TRUE(comes(queue.submit_unattended()));
  std::vector<int> wanted(kMany);
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(order, wanted);
}

TEST(OperationQueue, ACallerRunsWhatComesFirstAndLeavesTheRest) {
  TestedQueue queue;
  const auto before = queue.submit();
  const auto wanted = queue.submit();
  const auto after = queue.submit_unattended();
  wanted->wait();
  EXPECT_TRUE(before->done());
  EXPECT_EQ(after.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  queue.start();
  EXPECT_TRUE(comes(after));
}

TEST(OperationQueue, CallersRunNothingInATransportThatCannotBeInterrupted) {
  TestedQueue queue{false};
  queue.start();
  for (int index = 0; index < kMany; ++index) {
    std::thread::id runner;
    queue.submit([&runner] { runner = std::this_thread::get_id(); })->wait();
    EXPECT_NE(runner, std::thread::id{});
    EXPECT_NE(runner, std::this_thread::get_id());
  }
  EXPECT_TRUE(comes(queue.submit_unattended()));
}

TEST(OperationQueue, ServesSeveralCallersAtOnce) {
  std::atomic<int> ran = 0;
  TestedQueue queue;
  queue.run_by_caller(kMany);
  queue.start();
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int index = 0; index < kMany; ++index) {
        const auto operation = queue.submit([&ran] { ++ran; });
        if (index % 3 != 0) operation->wait();
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_TRUE(comes(queue.submit_unattended()));
  EXPECT_EQ(ran, 3 * kMany);
}

TEST(OperationQueue, RunsWhatIsLeftWhenItIsStopped) {
  for (const int microseconds : {0, 300, 10000}) {
    int ran = 0;
    {
      TestedQueue queue;
      queue.run_by_caller(kMany);
      queue.start();
      let_pass(std::chrono::microseconds(microseconds));
      for (int index = 0; index < kMany; ++index) queue.submit([&ran] { ++ran; });
    }
    EXPECT_EQ(ran, kMany) << "after " << microseconds << " microseconds";
  }
}

TEST(OperationQueue, RunsWhatIsLeftWhenItsEngineEnds) {
  int ran = 0;
  Work last;
  {
    HostEngine engine{std::make_unique<LoneTransport>(true), kLong};
    const auto submit = [&](std::function<void()> action) {
      return engine.submit({.kind = CallKind::barrier}, {},
                           [action = std::move(action)](HostTransport&, const Patience&) { action(); });
    };
    for (int index = 0; index < kMany; ++index) submit([] {}).wait();
    for (int index = 0; index < kMany; ++index) last = submit([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, kMany);
  EXPECT_TRUE(last.done());
  last.wait();  // throws where it was given up
}

}  // namespace
}  // namespace libtrain::detail
