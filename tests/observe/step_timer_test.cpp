#include <libtrain/observe/detail/step_timer.hpp>

#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

namespace libtrain {
namespace {

using namespace std::chrono_literals;

class StepTimerTest : public testing::Test {
 protected:
  detail::StepTimer::Clock::time_point now_{};
  detail::StepTimer timer_{[this] { return now_; }};
};

TEST_F(StepTimerTest, AddsUpPhasesByName) {
  for (int i = 0; i < 3; ++i) {
    const auto waiting = timer_.measure(detail::StepTimer::kDataWait);
    now_ += 250ms;
  }
  timer_.add(detail::StepTimer::kCommunicationWait, 0.5);
  timer_.add(detail::StepTimer::kCommunicationWait, 0.25);
  EXPECT_DOUBLE_EQ(timer_.total_s(detail::StepTimer::kDataWait), 0.75);
  EXPECT_DOUBLE_EQ(timer_.total_s("communication wait"), 0.75);
  EXPECT_EQ(timer_.total_s("compute"), 0.0);
  EXPECT_EQ(timer_.totals().size(), 2u);
}

TEST_F(StepTimerTest, PhasesMayLieWithinOneAnother) {
  {
    const auto outer = timer_.measure("outer");
    now_ += 1s;
    const auto inner = timer_.measure("inner");
    now_ += 2s;
  }
  EXPECT_DOUBLE_EQ(timer_.total_s("outer"), 3.0);
  EXPECT_DOUBLE_EQ(timer_.total_s("inner"), 2.0);
}

TEST_F(StepTimerTest, AStepLastsFromOneEndToTheNext) {
  now_ += 2s;
  EXPECT_DOUBLE_EQ(timer_.end_step(), 2.0);
  now_ += 1s;
  EXPECT_DOUBLE_EQ(timer_.end_step(), 1.0);
  now_ += 100s;
  timer_.start_step();
  now_ += 6s;
  EXPECT_DOUBLE_EQ(timer_.end_step(), 6.0);
  const auto summary = timer_.summary();
  EXPECT_EQ(summary.steps, 3);
  EXPECT_DOUBLE_EQ(summary.total_s, 9.0);
  EXPECT_DOUBLE_EQ(summary.min_s, 1.0);
  EXPECT_DOUBLE_EQ(summary.median_s, 2.0);
  EXPECT_DOUBLE_EQ(summary.max_s, 6.0);
}

TEST_F(StepTimerTest, IsAllZeroBeforeTheFirstStep) {
  const auto summary = timer_.summary();
  EXPECT_EQ(summary.steps, 0);
  EXPECT_EQ(summary.min_s, 0.0);
  EXPECT_EQ(summary.median_s, 0.0);
  EXPECT_EQ(summary.max_s, 0.0);
  EXPECT_THROW(timer_.step_percentile(0.5), UsageError);
}

TEST_F(StepTimerTest, PercentilesForgetTheOldestStepsButExtremesDoNot) {
  timer_.add_step(100.0);
  for (std::size_t i = 0; i < detail::StepTimer::kKeptSteps; ++i) timer_.add_step(1.0);
  EXPECT_EQ(timer_.step_percentile(1.0), 1.0);
  EXPECT_EQ(timer_.summary().max_s, 100.0);
  EXPECT_EQ(timer_.summary().steps, static_cast<std::int64_t>(detail::StepTimer::kKeptSteps) + 1);
}

}  // namespace
}  // namespace libtrain
