#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::detail {

/// Where the time of a training loop goes: seconds a phase ("compute", "communication wait", "data wait", or any other
/// name) and the distribution of step times. For one thread.
///
///   StepTimer timer;
///   for (...) {
///     { const auto waiting = timer.measure(StepTimer::kDataWait); batch = loader.next(); }
///     ...
///     timer.end_step();
///   }
class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::string_view kCompute = "compute";
  static constexpr std::string_view kCommunicationWait = "communication wait";
  static constexpr std::string_view kDataWait = "data wait";

  /// Percentiles are over this many of the latest steps, so that a long run needs bounded memory.
  static constexpr std::size_t kKeptSteps = 65536;

  /// Adds the time from its making to its end to a phase.
  class Measurement {
   public:
    Measurement(const Measurement&) = delete;  // would count the time twice
    Measurement& operator=(const Measurement&) = delete;
    ~Measurement();

   private:
    friend class StepTimer;
    Measurement(StepTimer& timer, double& total_s) : timer_(timer), total_s_(total_s), start_(timer.now_()) {}

    StepTimer& timer_;
    double& total_s_;
    Clock::time_point start_;
  };

  /// All step times are in seconds; zeros where there was no step.
  struct Summary {
    std::int64_t steps = 0;
    double total_s = 0.0;
    double min_s = 0.0;
    double median_s = 0.0;
    double max_s = 0.0;
  };

  explicit StepTimer(std::function<Clock::time_point()> now = Clock::now);

  [[nodiscard]] Measurement measure(std::string_view phase) { return {*this, total_of(phase)}; }

  /// Adds seconds measured elsewhere, for example the synchronizer's own count of its waiting.
  void add(std::string_view phase, double seconds) { total_of(phase) += seconds; }

  /// A step took from the last end_step, start_step or construction until now. Returns its seconds.
  double end_step();

  /// The next step begins now: after a pause that belongs to no step, such as an evaluation.
  void start_step() { step_start_ = now_(); }

  void add_step(double seconds);

  /// Seconds of a phase so far; 0 for one never named.
  double total_s(std::string_view phase) const;

  const std::map<std::string, double, std::less<>>& totals() const { return totals_; }

  Summary summary() const;

  /// Of the kept step times, with `share` from 0 to 1. Throws UsageError where there was no step.
  double step_percentile(double share) const;

 private:
  double& total_of(std::string_view phase);

  std::function<Clock::time_point()> now_;
  Clock::time_point step_start_;
  std::map<std::string, double, std::less<>> totals_;
  std::vector<double> latest_steps_;  // a ring once it holds kKeptSteps
  Summary summary_;                   // all but the median
};

}  // namespace libtrain::detail
