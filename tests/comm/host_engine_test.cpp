#include <libtrain/comm/host_engine.hpp>

#include <functional>
#include <future>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/abort_reason.hpp>

#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

// One rank of a group of two that has no other, and whose calls end as the test says.
class FakeTransport : public HostTransport {
 public:
  using Body = std::function<void(const Patience&)>;
  FakeTransport(bool interruptible, Body all_reduce)
      : interruptible_(interruptible), all_reduce_(std::move(all_reduce)) {}

  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  std::string_view name() const override { return "fake"; }
  bool interruptible() const override { return interruptible_; }

  bool arrive(const Arrival&, const Patience&) override { return true; }
  void all_reduce(const void*, void*, std::size_t, DataType, ReduceOp, const Patience& patience) override {
    all_reduce_(patience);
  }
  void reduce(const void*, void*, std::size_t, DataType, ReduceOp, int, const Patience&) override {}
  void broadcast(void*, std::size_t, int, const Patience&) override {}
  void all_gather(const void*, void*, std::size_t, const Patience&) override {}
  void reduce_scatter(const void*, void*, std::size_t, DataType, ReduceOp, const Patience&) override {}
  void all_to_all(const void*, void*, std::size_t, const Patience&) override {}
  std::unique_ptr<HostTransport> split(int, int, const Patience&) override { return nullptr; }
  void abort(const std::string& reason) noexcept override { aborted_.set(reason); }

  const AbortReason& aborted() const { return aborted_; }

 private:
  bool interruptible_;
  Body all_reduce_;
  AbortReason aborted_;
};

Work submit_all_reduce(HostEngine& engine, std::optional<std::chrono::milliseconds> timeout = {}) {
  const auto reduce = [](HostTransport& transport, const Patience& patience) {
    transport.all_reduce(nullptr, nullptr, 0, DataType::float32, ReduceOp::sum, patience);
  };
  return engine.submit({CallKind::all_reduce, 8, DataType::float32, ReduceOp::sum}, {.timeout = timeout}, reduce);
}

std::string failure_of(Work work) {
  return message_of<CommunicationError>([&] { work.wait(); });
}

TEST(HostEngine, AStuckLibraryHoldsUpNeitherTheWaitNorTheDestructor) {
  std::promise<void> end;
  // A peer that is stopped for ever; the bound is there so that a wait without one fails the test and does not hang it.
  const auto stuck = [ended = end.get_future().share()](const Patience&) { ended.wait_for(std::chrono::seconds(60)); };
  const Stopwatch stopwatch;
  {
    HostEngine engine{std::make_unique<FakeTransport>(false, stuck), std::chrono::milliseconds(100)};
    auto first = submit_all_reduce(engine);
    auto second = submit_all_reduce(engine);
    const auto message = failure_of(first);
    EXPECT_THAT(message,
                AllOf(HasSubstr("all_reduce of 8 float32 (sum) (collective number 0)"), HasSubstr("still stuck")));
    // Those behind it, and those to come, fail at once and for the same reason.
    const Stopwatch later;
    EXPECT_EQ(failure_of(second), message);
    EXPECT_EQ(failure_of(first), message);
    EXPECT_EQ(message_of<CommunicationError>([&] { submit_all_reduce(engine).wait(); }), message);
    EXPECT_LT(later.seconds(), 1.0);
  }
  EXPECT_LT(stopwatch.seconds(), 15.0);
  end.set_value();
}

TEST(HostEngine, ACallKeepsItsDeadlineBehindOneWithALaterOne) {
  for (const bool interruptible : {true, false}) {
    std::promise<void> end;
    const auto slow = [ended = end.get_future().share()](const Patience& patience) {
      ended.wait_until(patience.deadline.time_point());
    };
    HostEngine engine{std::make_unique<FakeTransport>(interruptible, slow), std::chrono::seconds(30)};
    auto slow_call = submit_all_reduce(engine);
    auto call = submit_all_reduce(engine, std::chrono::milliseconds(200));
    const Stopwatch stopwatch;
    EXPECT_THAT(failure_of(call), AllOf(HasSubstr("(collective number 1) could not begin before its deadline"),
                                        HasSubstr("(collective number 0), called before it, has not ended")));
    EXPECT_LT(stopwatch.seconds(), 3.0);
    end.set_value();
  }
}

TEST(HostEngine, WhatFailsOnThisRankAloneIsToldToTheTransport) {
  auto fails = std::make_unique<FakeTransport>(true, [](const Patience&) {
    throw std::runtime_error("no memory for it\nException raised from somewhere at some.cpp:12");
  });
  const auto& aborted = fails->aborted();
  HostEngine engine{std::move(fails), std::chrono::seconds(30)};
  const auto message = failure_of(submit_all_reduce(engine));
  EXPECT_EQ(message, "all_reduce of 8 float32 (sum) (collective number 0) failed: no memory for it");
  EXPECT_EQ(aborted.text(), "no memory for it");
  EXPECT_EQ(message_of<CommunicationError>([&] { submit_all_reduce(engine).wait(); }), message);
}

// What is dropped runs all the same, but the rank that reads its tensor reads it too early.
TEST(HostEngine, AWorkThatIsNeverWaitedForIsReportedOnce) {
  const test::CapturedLog log{LogLevel::warning};
  {
    HostEngine engine{std::make_unique<FakeTransport>(true, [](const Patience&) {}), std::chrono::seconds(30)};
    submit_all_reduce(engine).wait();
    static_cast<void>(submit_all_reduce(engine));
    auto polled = submit_all_reduce(engine);
    while (!polled.done()) std::this_thread::yield();
    {
      const auto kept = submit_all_reduce(engine);
    }
  }
  ASSERT_EQ(log.lines().size(), 1u);
  EXPECT_THAT(log.lines().front(), AllOf(HasSubstr("all_reduce of 8 float32 (sum) (collective number 1)"),
                                         HasSubstr("was never waited for"), HasSubstr("wait()")));
}

TEST(HostEngine, WhatFailedIsNotReportedAsForgotten) {
  const test::CapturedLog log{LogLevel::warning};
  {
    HostEngine engine{std::make_unique<FakeTransport>(true, [](const Patience&) { throw std::runtime_error("no"); }),
                      std::chrono::seconds(30)};
    auto first = submit_all_reduce(engine);
    failure_of(first);
  }
  {
    HostEngine engine{std::make_unique<FakeTransport>(true, [](const Patience&) { throw std::runtime_error("no"); }),
                      std::chrono::seconds(30)};
    static_cast<void>(submit_all_reduce(engine));
  }
  EXPECT_THAT(log.lines(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace libtrain::detail
