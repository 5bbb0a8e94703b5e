#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <stop_token>

namespace libtrain::data {

/// How something that failed is tried again. The n-th wait is first_wait * 2^(n-1), at most longest_wait, times a
/// random factor between 0.5 and 1, so that the ranks of a job do not all come back at once.
struct RetryOptions {
  std::chrono::milliseconds first_wait{500};
  std::chrono::milliseconds longest_wait{15'000};

  /// No attempt begins later than this after the first one began. Zero: a single attempt. How long one attempt takes is
  /// not bounded here.
  std::chrono::milliseconds deadline{std::chrono::minutes{5}};
};

/// What retry() needs of the world; a test puts its own in its place.
class RetryTimer {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~RetryTimer() = default;

  virtual Clock::time_point now() = 0;

  /// Waits so long, or until a stop is requested. False where it is, or was already.
  virtual bool wait(std::chrono::nanoseconds time, const std::stop_token& stop) = 0;

  /// A number in [0, 1).
  virtual double random() = 0;
};

/// The steady clock, waits that end within microseconds of a stop request, and random numbers that differ between
/// processes. Any thread may use it.
class SteadyRetryTimer final : public RetryTimer {
 public:
  Clock::time_point now() override { return Clock::now(); }
  bool wait(std::chrono::nanoseconds time, const std::stop_token& stop) override;
  double random() override;
};

/// Calls `attempt` until it returns. What it throws is rethrown as it is where `is_transient` says false (or is not a
/// std::exception); otherwise it waits and tries again.
/// Throws EnvironmentError with the text of the last failure, how often and for how long it was tried, once the
/// deadline has passed, and likewise as soon as a stop is requested during a wait. UsageError for waits or a deadline
/// below zero.
void retry(const RetryOptions& options, RetryTimer& timer, const std::stop_token& stop,
           const std::function<void()>& attempt, const std::function<bool(const std::exception&)>& is_transient);

}  // namespace libtrain::data
