#include <libtrain/data/storage/retry.hpp>

#include <chrono>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Time passes only in waits, and in attempts that say so.
class FakeTimer final : public RetryTimer {
 public:
  Clock::time_point now() override { return now_; }

  bool wait(std::chrono::nanoseconds time, const std::stop_token& stop) override {
    waits.push_back(std::chrono::duration_cast<milliseconds>(time).count());
    if (stop.stop_requested()) return false;
    now_ += time;
    return true;
  }

  double random() override { return chance; }

  void pass(milliseconds time) { now_ += time; }

  std::vector<milliseconds::rep> waits;
  double chance = 1.0;  // the longest waits, although never quite reached

 private:
  Clock::time_point now_{};
};

const RetryOptions kOptions{
    .first_wait = milliseconds{100}, .longest_wait = milliseconds{1000}, .deadline = milliseconds{10'000}};

bool always(const std::exception&) {
  return true;
}

TEST(Retry, ReturnsWithTheFirstSuccess) {
  FakeTimer timer;
  int attempts = 0;
  retry(kOptions, timer, {}, [&] { ++attempts; }, always);
  EXPECT_EQ(attempts, 1);
  EXPECT_THAT(timer.waits, ElementsAre());
}

TEST(Retry, WaitsTwiceAsLongEachTimeUpToTheLongestWait) {
  FakeTimer timer;
  int attempts = 0;
  const auto attempt = [&] {
    if (++attempts <= 6) throw std::runtime_error("busy");
  };
  retry(kOptions, timer, {}, attempt, always);
  EXPECT_EQ(attempts, 7);
  EXPECT_THAT(timer.waits, ElementsAre(100, 200, 400, 800, 1000, 1000));
}

TEST(Retry, WaitsAtLeastHalfAsLong) {
  FakeTimer timer;
  timer.chance = 0.0;
  int attempts = 0;
  const auto attempt = [&] {
    if (++attempts <= 3) throw std::runtime_error("busy");
  };
  retry(kOptions, timer, {}, attempt, always);
  EXPECT_THAT(timer.waits, ElementsAre(50, 100, 200));
}

TEST(Retry, ThrowsOnAtOnceWhatDoesNotPass) {
  FakeTimer timer;
  int attempts = 0;
  const auto attempt = [&] {
    ++attempts;
    throw UsageError("wrong");
  };
  const auto is_transient = [](const std::exception& error) { return dynamic_cast<const Error*>(&error) == nullptr; };
  EXPECT_EQ(message_of<UsageError>([&] { retry(kOptions, timer, {}, attempt, is_transient); }), "wrong");
  EXPECT_EQ(attempts, 1);
  EXPECT_THAT(timer.waits, ElementsAre());
}

TEST(Retry, AsksOfEachFailureWhetherItMayPass) {
  FakeTimer timer;
  int attempts = 0;
  const auto attempt = [&] { throw std::runtime_error(++attempts < 3 ? "busy" : "gone"); };
  const auto is_transient = [](const std::exception& error) { return std::string{error.what()} == "busy"; };
  EXPECT_EQ(message_of<std::runtime_error>([&] { retry(kOptions, timer, {}, attempt, is_transient); }), "gone");
  EXPECT_EQ(attempts, 3);
}

TEST(Retry, GivesUpAtTheDeadlineWithTheLastFailure) {
  FakeTimer timer;
  int attempts = 0;
  const auto attempt = [&] { throw std::runtime_error(text("failure ", ++attempts, ".")); };
  const RetryOptions options{
      .first_wait = milliseconds{100}, .longest_wait = milliseconds{400}, .deadline = milliseconds{1000}};
  const auto message = message_of<EnvironmentError>([&] { retry(options, timer, {}, attempt, always); });
  // The last wait is cut so that the last attempt falls on the deadline.
  EXPECT_THAT(timer.waits, ElementsAre(100, 200, 400, 300));
  EXPECT_EQ(message, "failure 5. Tried 5 times in 1.0 s.");
}

TEST(Retry, CountsTheTimeThatAttemptsTake) {
  FakeTimer timer;
  int attempts = 0;
  const auto attempt = [&] {
    ++attempts;
    timer.pass(milliseconds{6000});
    throw std::runtime_error("slow.");
  };
  const auto message = message_of<EnvironmentError>([&] { retry(kOptions, timer, {}, attempt, always); });
  EXPECT_EQ(attempts, 2);
  EXPECT_EQ(message, "slow. Tried 2 times in 12.1 s.");
}

TEST(Retry, TriesOnceWhereTheDeadlineIsZero) {
  FakeTimer timer;
  const auto attempt = [] { throw std::runtime_error("busy."); };
  EXPECT_EQ(message_of<EnvironmentError>([&] { retry({.deadline = milliseconds{0}}, timer, {}, attempt, always); }),
            "busy. Tried once in 0.0 s.");
  EXPECT_THAT(timer.waits, ElementsAre());
}

TEST(Retry, EndsWithAStopRequest) {
  FakeTimer timer;
  std::stop_source stop;
  int attempts = 0;
  const auto attempt = [&] {
    if (++attempts == 2) stop.request_stop();
    throw std::runtime_error("busy.");
  };
  const auto message = message_of<EnvironmentError>([&] { retry(kOptions, timer, stop.get_token(), attempt, always); });
  EXPECT_EQ(attempts, 2);
  EXPECT_THAT(message, AllOf(StartsWith("busy."), HasSubstr("stop was requested")));
}

TEST(Retry, RefusesNegativeTimes) {
  FakeTimer timer;
  const RetryOptions options{.deadline = milliseconds{-1}};
  EXPECT_THAT(message_of<UsageError>([&] { retry(options, timer, {}, [] {}, always); }), HasSubstr("deadline -1 ms"));
  EXPECT_THROW(retry({.first_wait = milliseconds{-1}}, timer, {}, [] {}, always), UsageError);
  EXPECT_THROW(retry({.longest_wait = milliseconds{-1}}, timer, {}, [] {}, always), UsageError);
}

TEST(Retry, TakesTheLongestDurationsThereAre) {
  FakeTimer timer;
  int attempts = 0;
  const auto attempt = [&] {
    if (++attempts < 4) throw std::runtime_error("busy");
  };
  retry({.first_wait = milliseconds::max(), .longest_wait = milliseconds::max(), .deadline = milliseconds::max()},
        timer, {}, attempt, always);
  EXPECT_EQ(attempts, 4);
  EXPECT_THAT(timer.waits, ElementsAre(3'600'000, 3'600'000, 3'600'000));
}

TEST(RetryTimer, LetsAStopRequestEndAWait) {
  RetryTimer timer;
  std::stop_source stop;
  // An hour that ends as soon as the other thread gets its turn, before or after the wait has begun.
  std::jthread stopper{[&] { stop.request_stop(); }};
  EXPECT_FALSE(timer.wait(std::chrono::hours{1}, stop.get_token()));
}

TEST(RetryTimer, WaitsForTheGivenTime) {
  RetryTimer timer;
  const auto start = timer.now();
  EXPECT_TRUE(timer.wait(milliseconds{5}, {}));
  EXPECT_GE(timer.now() - start, milliseconds{5});
}

TEST(RetryTimer, DrawsDifferentNumbersBelowOne) {
  RetryTimer timer;
  std::set<double> drawn;
  for (int i = 0; i < 1000; ++i) {
    const auto number = timer.random();
    ASSERT_GE(number, 0.0);
    ASSERT_LT(number, 1.0);
    drawn.insert(number);
  }
  EXPECT_EQ(drawn.size(), 1000U);
}

}  // namespace
}  // namespace libtrain::data
