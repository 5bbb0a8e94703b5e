#include <libtrain/observe/detail/step_timer.hpp>

#include <algorithm>
#include <utility>

#include <libtrain/observe/detail/percentile.hpp>

namespace libtrain::detail {
namespace {

double seconds_between(StepTimer::Clock::time_point start, StepTimer::Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

StepTimer::Measurement::~Measurement() {
  total_s_ += seconds_between(start_, timer_.now_());
}

StepTimer::StepTimer(std::function<Clock::time_point()> now) : now_(std::move(now)), step_start_(now_()) {}

double StepTimer::end_step() {
  const auto now = now_();
  const double seconds = seconds_between(step_start_, now);
  step_start_ = now;
  add_step(seconds);
  return seconds;
}

void StepTimer::add_step(double seconds) {
  summary_.min_s = summary_.steps == 0 ? seconds : std::min(summary_.min_s, seconds);
  summary_.max_s = summary_.steps == 0 ? seconds : std::max(summary_.max_s, seconds);
  summary_.total_s += seconds;
  if (latest_steps_.size() < kKeptSteps) {
    latest_steps_.push_back(seconds);
  } else {
    latest_steps_[static_cast<std::size_t>(summary_.steps) % kKeptSteps] = seconds;
  }
  ++summary_.steps;
}

double StepTimer::total_s(std::string_view phase) const {
  const auto found = totals_.find(phase);
  return found == totals_.end() ? 0.0 : found->second;
}

StepTimer::Summary StepTimer::summary() const {
  Summary summary = summary_;
  if (summary.steps > 0) summary.median_s = step_percentile(0.5);
  return summary;
}

double StepTimer::step_percentile(double share) const {
  return percentile(latest_steps_, share);
}

double& StepTimer::total_of(std::string_view phase) {
  const auto found = totals_.find(phase);
  return found != totals_.end() ? found->second : totals_.emplace(phase, 0.0).first->second;
}

}  // namespace libtrain::detail
