#pragma once

#include <chrono>

namespace libtrain {

/// Measures seconds since its construction on the steady clock.
class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// Starts again from zero and returns the seconds until now.
  double restart() {
    const auto now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return elapsed;
  }

 private:
  Clock::time_point start_ = Clock::now();
};

/// The time at which a wait gives up, on the steady clock. A cheap value type, shared by the steps of one wait.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// `timeout` from now. A negative timeout has already expired; one past the end of the clock never expires.
  static Deadline after(std::chrono::milliseconds timeout) {
    const auto now = Clock::now();
    const auto furthest = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
    if (timeout >= furthest) return never();
    return Deadline{timeout.count() < 0 ? now : now + timeout};
  }

  static Deadline at(Clock::time_point time) { return Deadline{time}; }

  /// Never expires. For callers that explicitly request no timeout.
  static Deadline never() { return Deadline{Clock::time_point::max()}; }

  /// This deadline postponed by `time`; `never()` is unchanged.
  Deadline later_by(std::chrono::milliseconds time) const {
    return at_ > Clock::time_point::max() - time ? never() : Deadline{at_ + time};
  }

  bool is_never() const { return at_ == Clock::time_point::max(); }

  bool expired() const { return !is_never() && Clock::now() >= at_; }

  /// Time left: zero once expired, the maximum duration for `never()`.
  Clock::duration remaining() const {
    if (is_never()) return Clock::duration::max();
    const auto now = Clock::now();
    return now < at_ ? at_ - now : Clock::duration::zero();
  }

  /// For `wait_until` of condition variables and semaphores.
  Clock::time_point time_point() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}

  Clock::time_point at_;
};

}  // namespace libtrain
