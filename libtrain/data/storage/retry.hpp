#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <stop_token>

namespace libtrain::data {

/// How failed operations are retried. The n-th wait is first_wait * 2^(n-1), at most longest_wait, times a random
/// factor between 0.5 and 1, so that the ranks of a job do not all retry at the same time.
struct RetryOptions {
  std::chrono::milliseconds first_wait{500};
  std::chrono::milliseconds longest_wait{15'000};

  /// No attempt begins later than this after the first one began. Zero: a single attempt. The duration of one attempt
  /// is not bounded.
  std::chrono::milliseconds deadline{std::chrono::minutes{5}};
};

/// The clock and the random numbers of retry(); tests substitute their own. Any thread may use it.
class RetryTimer {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~RetryTimer() = default;

  virtual Clock::time_point now() { return Clock::now(); }

  /// Waits for `time`; returns false, within microseconds, if a stop is requested before.
  virtual bool wait(std::chrono::nanoseconds time, const std::stop_token& stop);

  /// A number in [0, 1), different in each process.
  virtual double random();
};

/// Calls `attempt` until it returns, with a wait after each exception. Rethrows an exception unchanged if it is not a
/// std::exception or `is_transient` returns false for it.
/// Throws EnvironmentError with the message of the last failure and the number and duration of the attempts if the
/// deadline passes or a stop is requested during a wait; UsageError for a negative wait or deadline.
void retry(const RetryOptions& options, RetryTimer& timer, const std::stop_token& stop,
           const std::function<void()>& attempt, const std::function<bool(const std::exception&)>& is_transient);

}  // namespace libtrain::data
