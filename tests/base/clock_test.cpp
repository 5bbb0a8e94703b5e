#include <libtrain/base/clock.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace libtrain {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Stopwatch, NeverRunsBackwards) {
  const Stopwatch stopwatch;
  const double first = stopwatch.seconds();
  EXPECT_GE(first, 0.0);
  EXPECT_GE(stopwatch.seconds(), first);
}

TEST(Stopwatch, AgreesWithTheSteadyClock) {
  const auto before = Clock::now();
  const Stopwatch stopwatch;
  while (Clock::now() - before < 3ms) {
  }
  const double measured = stopwatch.seconds();
  const double outer = std::chrono::duration<double>(Clock::now() - before).count();
  EXPECT_GT(measured, 0.0);
  EXPECT_LE(measured, outer);
}

TEST(Stopwatch, RestartReturnsWhatHadPassed) {
  const auto before = Clock::now();
  Stopwatch stopwatch;
  const double sum = stopwatch.restart() + stopwatch.restart() + stopwatch.seconds();
  EXPECT_LE(sum, std::chrono::duration<double>(Clock::now() - before).count());
}

TEST(Deadline, LiesTheTimeoutAhead) {
  const auto before = Clock::now();
  const auto deadline = Deadline::after(1h);
  const auto after = Clock::now();
  EXPECT_GE(deadline.time_point(), before + 1h);
  EXPECT_LE(deadline.time_point(), after + 1h);
  EXPECT_FALSE(deadline.expired());
  EXPECT_LE(deadline.remaining(), 1h);
  EXPECT_GT(deadline.remaining(), 30min);
}

TEST(Deadline, HasNothingLeftOnceExpired) {
  for (const auto timeout : {0ms, -5ms, std::chrono::milliseconds::min()}) {
    const auto deadline = Deadline::after(timeout);
    EXPECT_TRUE(deadline.expired());
    EXPECT_EQ(deadline.remaining(), Clock::duration::zero());
  }
}

TEST(Deadline, NeverDoesNotExpire) {
  const auto deadline = Deadline::never();
  EXPECT_TRUE(deadline.is_never());
  EXPECT_FALSE(deadline.expired());
  EXPECT_EQ(deadline.remaining(), Clock::duration::max());
  EXPECT_EQ(deadline.time_point(), Clock::time_point::max());
}

TEST(Deadline, PastTheEndOfTheClockIsNever) {
  EXPECT_TRUE(Deadline::after(std::chrono::milliseconds::max()).is_never());
}

TEST(Deadline, IsPutOffByATimeAndNotBeyondTheEndOfTheClock) {
  const auto moment = Clock::now();
  EXPECT_EQ(Deadline::at(moment).later_by(250ms).time_point(), moment + 250ms);
  const auto end = Clock::time_point::max();
  EXPECT_EQ(Deadline::at(end - 2ms).later_by(1ms).time_point(), end - 1ms);
  EXPECT_TRUE(Deadline::at(end - 1ms).later_by(2ms).is_never());
  EXPECT_TRUE(Deadline::never().later_by(1ms).is_never());
}

TEST(Deadline, CopiesShareOneMoment) {
  const auto deadline = Deadline::after(10s);
  const auto copy = deadline;
  EXPECT_EQ(copy.time_point(), deadline.time_point());
}

}  // namespace
}  // namespace libtrain
