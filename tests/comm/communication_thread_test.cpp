// Which thread runs collectives, how they end, and that none is forgotten.

#include <libtrain/comm/detail/communication_thread.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/first_failure.hpp>
#include <libtrain/comm/threads/detail/thread_group.hpp>
#include <libtrain/comm/threads/detail/thread_transport.hpp>

#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

// A test starts its thread: without it callers run the collectives that they wait for.
class TestedThread {
 public:
  explicit TestedThread(bool interruptible = true) : thread_(std::make_unique<LoneTransport>(interruptible), kLong) {}

  void start() { thread_.start(); }

  Work submit(std::function<void()> action = [] {}) {
    return thread_.submit({.kind = CallKind::barrier}, {},
                          [action = std::move(action)](HostTransport&, const WaitPolicy&) { action(); });
  }

  // Operations whose caller waits for each at once.
  void run_by_caller(int count) {
    for (int index = 0; index < count; ++index) submit().wait();
  }

  // Becomes ready when an operation without a waiting caller is run, after all operations submitted before it.
  std::future<void> submit_unattended() {
    const auto promise = std::make_shared<std::promise<void>>();
    auto ran = promise->get_future();
    static_cast<void>(submit([promise] { promise->set_value(); }));
    return ran;
  }

 private:
  CommunicationThread thread_;
};

bool comes(const std::future<void>& event) {
  return event.wait_for(kLong) == std::future_status::ready;
}

// Not sleep: the time passes for the communication thread alone.
void let_pass(std::chrono::microseconds time) {
  const Stopwatch stopwatch;
  while (stopwatch.seconds() < std::chrono::duration<double>(time).count()) std::this_thread::yield();
}

TEST(CommunicationThread, RunsWhatNobodyWaitsForAfterCallersHaveRunMany) {
  TestedThread thread;
  thread.run_by_caller(kMany);
  thread.start();
  EXPECT_TRUE(comes(thread.submit_unattended()));
  // In all states in which the communication thread may be: before and during its short waits, between them, and
  // asleep.
  for (const int microseconds : {0, 50, 300, 500, 700, 1500, 2500, 10000}) {
    thread.run_by_caller(kMany);
    let_pass(std::chrono::microseconds(microseconds));
    EXPECT_TRUE(comes(thread.submit_unattended())) << "after " << microseconds << " microseconds";
  }
}

TEST(CommunicationThread, RunsWhatNobodyWaitsForOneByOne) {
  TestedThread thread;
  thread.run_by_caller(kMany);
  thread.start();
  for (int index = 0; index < kMany; ++index) {
    ASSERT_TRUE(comes(thread.submit_unattended())) << index;
    if (index % 3 == 0) thread.run_by_caller(1 + index % 7);
  }
}

TEST(CommunicationThread, KeepsTheOrder) {
  std::vector<int> order;
  TestedThread thread;
  thread.run_by_caller(kMany);
  thread.start();
  for (int index = 0; index < kMany; ++index) {
    auto work = thread.submit([&order, index] { order.push_back(index); });
    if (index % 4 == 0) work.wait();
  }
  ASSERT_TRUE(comes(thread.submit_unattended()));
  std::vector<int> wanted(kMany);
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(order, wanted);
}

TEST(CommunicationThread, ACallerRunsWhatComesFirstAndLeavesTheRest) {
  TestedThread thread;
  const auto before = thread.submit();
  auto wanted = thread.submit();
  const auto after = thread.submit_unattended();
  wanted.wait();
  EXPECT_TRUE(before.done());
  EXPECT_EQ(after.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  thread.start();
  EXPECT_TRUE(comes(after));
}

TEST(CommunicationThread, CallersRunNothingInATransportThatCannotBeInterrupted) {
  TestedThread thread{false};
  thread.start();
  for (int index = 0; index < kMany; ++index) {
    std::thread::id runner;
    thread.submit([&runner] { runner = std::this_thread::get_id(); }).wait();
    EXPECT_NE(runner, std::thread::id{});
    EXPECT_NE(runner, std::this_thread::get_id());
  }
  EXPECT_TRUE(comes(thread.submit_unattended()));
}

TEST(CommunicationThread, ServesSeveralCallersAtOnce) {
  std::atomic<int> ran = 0;
  TestedThread thread;
  thread.run_by_caller(kMany);
  thread.start();
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int index = 0; index < kMany; ++index) {
        auto work = thread.submit([&ran] { ++ran; });
        if (index % 3 != 0) work.wait();
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_TRUE(comes(thread.submit_unattended()));
  EXPECT_EQ(ran, 3 * kMany);
}

TEST(CommunicationThread, RunsWhatIsLeftWhenItIsStopped) {
  for (const int microseconds : {0, 300, 10000}) {
    int ran = 0;
    {
      TestedThread thread;
      thread.run_by_caller(kMany);
      thread.start();
      let_pass(std::chrono::microseconds(microseconds));
      for (int index = 0; index < kMany; ++index) static_cast<void>(thread.submit([&ran] { ++ran; }));
    }
    EXPECT_EQ(ran, kMany) << "after " << microseconds << " microseconds";
  }
}

TEST(CommunicationThread, WhatIsLeftHasEndedWell) {
  Work last;
  {
    TestedThread thread;
    thread.start();
    thread.run_by_caller(kMany);
    for (int index = 0; index < kMany; ++index) last = thread.submit();
  }
  EXPECT_TRUE(last.done());
  last.wait();  // throws if it was given up
}

// A rank of a group of two without the other rank; the test defines its all_reduce().
class FakeTransport : public HostTransport {
 public:
  using Body = std::function<void(const WaitPolicy&)>;
  FakeTransport(bool interruptible, Body all_reduce)
      : interruptible_(interruptible), all_reduce_(std::move(all_reduce)) {}

  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  std::string_view name() const override { return "fake"; }
  bool interruptible() const override { return interruptible_; }

  bool arrive(const Arrival&, const WaitPolicy&) override { return true; }
  void all_reduce(const void*, void*, std::size_t, DataType, ReduceOp, const WaitPolicy& policy) override {
    all_reduce_(policy);
  }
  void reduce(const void*, void*, std::size_t, DataType, ReduceOp, int, const WaitPolicy&) override {}
  void broadcast(void*, std::size_t, int, const WaitPolicy&) override {}
  void all_gather(const void*, void*, std::size_t, const WaitPolicy&) override {}
  void reduce_scatter(const void*, void*, std::size_t, DataType, ReduceOp, const WaitPolicy&) override {}
  void all_to_all(const void*, void*, std::size_t, const WaitPolicy&) override {}
  std::unique_ptr<HostTransport> split(int, int, const WaitPolicy&) override { return nullptr; }
  void abort(const std::string& reason) noexcept override { aborted_.set(reason); }

  const FirstFailure& aborted() const { return aborted_; }

 private:
  bool interruptible_;
  Body all_reduce_;
  FirstFailure aborted_;
};

Work submit_all_reduce(CommunicationThread& thread, std::optional<std::chrono::milliseconds> timeout = {}) {
  const auto reduce = [](HostTransport& transport, const WaitPolicy& policy) {
    transport.all_reduce(nullptr, nullptr, 0, DataType::float32, ReduceOp::sum, policy);
  };
  return thread.submit({CallKind::all_reduce, 8, DataType::float32, ReduceOp::sum}, {.timeout = timeout}, reduce);
}

std::string failure_of(Work work) {
  return message_of<CommunicationError>([&] { work.wait(); });
}

TEST(CommunicationThread, AStuckLibraryHoldsUpNeitherTheWaitNorTheDestructor) {
  std::promise<void> end;
  // A peer that is stopped for ever; the bound is there so that a wait without one fails the test and does not hang it.
  const auto stuck = [ended = end.get_future().share()](const WaitPolicy&) {
    ended.wait_for(std::chrono::seconds(60));
  };
  const Stopwatch stopwatch;
  {
    CommunicationThread thread{std::make_unique<FakeTransport>(false, stuck), std::chrono::milliseconds(100)};
    thread.start();
    auto first = submit_all_reduce(thread);
    auto second = submit_all_reduce(thread);
    const auto message = failure_of(first);
    EXPECT_THAT(message,
                AllOf(HasSubstr("all_reduce of 8 float32 (sum) (collective number 0)"), HasSubstr("still stuck")));
    // Queued and later calls fail at once and with the same reason.
    const Stopwatch later;
    EXPECT_EQ(failure_of(second), message);
    EXPECT_EQ(failure_of(first), message);
    EXPECT_EQ(message_of<CommunicationError>([&] { submit_all_reduce(thread).wait(); }), message);
    EXPECT_LT(later.seconds(), 1.0);
  }
  EXPECT_LT(stopwatch.seconds(), 15.0);
  end.set_value();
}

TEST(CommunicationThread, ACallThatCannotBeginNamesTheOneThatIsStuck) {
  std::promise<void> end;
  const auto stuck = [ended = end.get_future().share()](const WaitPolicy&) {
    ended.wait_for(std::chrono::seconds(60));
  };
  {
    CommunicationThread thread{std::make_unique<FakeTransport>(false, stuck), std::chrono::milliseconds(100)};
    thread.start();
    static_cast<void>(submit_all_reduce(thread));
    EXPECT_THAT(failure_of(submit_all_reduce(thread)),
                AllOf(HasSubstr("(collective number 1) did not start"), HasSubstr("(collective number 0) was called")));
  }
  end.set_value();
}

TEST(CommunicationThread, ACallKeepsItsDeadlineBehindOneWithALaterOne) {
  for (const bool interruptible : {true, false}) {
    std::atomic<bool> runs = false;
    std::promise<void> end;
    const auto slow = [&runs, ended = end.get_future().share()](const WaitPolicy& policy) {
      runs = true;
      ended.wait_until(policy.deadline.time_point());
    };
    CommunicationThread thread{std::make_unique<FakeTransport>(interruptible, slow), std::chrono::seconds(30)};
    thread.start();
    auto slow_call = submit_all_reduce(thread);
    while (!runs) std::this_thread::yield();
    auto call = submit_all_reduce(thread, std::chrono::milliseconds(200));
    const Stopwatch stopwatch;
    EXPECT_THAT(failure_of(call), AllOf(HasSubstr("(collective number 1) did not start before its deadline"),
                                        HasSubstr("(collective number 0) was called before it and has not finished")));
    EXPECT_LT(stopwatch.seconds(), 3.0);
    end.set_value();
  }
}

TEST(CommunicationThread, WhatFailsOnThisRankAloneIsToldToTheTransport) {
  auto fails = std::make_unique<FakeTransport>(true, [](const WaitPolicy&) {
    throw std::runtime_error("no memory for it\nException raised from somewhere at some.cpp:12");
  });
  const auto& aborted = fails->aborted();
  CommunicationThread thread{std::move(fails), std::chrono::seconds(30)};
  thread.start();
  const auto message = failure_of(submit_all_reduce(thread));
  EXPECT_EQ(message, "all_reduce of 8 float32 (sum) (collective number 0) failed: no memory for it");
  EXPECT_EQ(aborted.reason(), "no memory for it");
  EXPECT_EQ(message_of<CommunicationError>([&] { submit_all_reduce(thread).wait(); }), message);
}

// A dropped collective runs nevertheless, but its rank may read the tensor too early.
TEST(CommunicationThread, AWorkThatIsNeverWaitedForIsReportedOnce) {
  const test::CapturedLog log{LogLevel::warning};
  {
    CommunicationThread thread{std::make_unique<FakeTransport>(true, [](const WaitPolicy&) {}),
                               std::chrono::seconds(30)};
    thread.start();
    submit_all_reduce(thread).wait();
    static_cast<void>(submit_all_reduce(thread));
    auto polled = submit_all_reduce(thread);
    while (!polled.done()) std::this_thread::yield();
    {
      const auto kept = submit_all_reduce(thread);
    }
  }
  ASSERT_EQ(log.lines().size(), 1u);
  EXPECT_THAT(log.lines().front(), AllOf(HasSubstr("all_reduce of 8 float32 (sum) (collective number 1)"),
                                         HasSubstr("was never waited for"), HasSubstr("wait()")));
}

TEST(CommunicationThread, WhatFailedIsNotReportedAsForgotten) {
  const test::CapturedLog log{LogLevel::warning};
  {
    CommunicationThread thread{
        std::make_unique<FakeTransport>(true, [](const WaitPolicy&) { throw std::runtime_error("no"); }),
        std::chrono::seconds(30)};
    thread.start();
    auto first = submit_all_reduce(thread);
    failure_of(first);
  }
  {
    CommunicationThread thread{
        std::make_unique<FakeTransport>(true, [](const WaitPolicy&) { throw std::runtime_error("no"); }),
        std::chrono::seconds(30)};
    thread.start();
    static_cast<void>(submit_all_reduce(thread));
  }
  EXPECT_THAT(log.lines(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace libtrain::detail
