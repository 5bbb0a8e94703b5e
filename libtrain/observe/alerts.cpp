#include <libtrain/observe/alerts.hpp>

#include <algorithm>
#include <cmath>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/observe/progress_line.hpp>

namespace libtrain {
namespace {

std::string percent(double share) {
  return text(std::lround(100.0 * share), "%");
}

std::string gibibytes(std::int64_t bytes) {
  return detail::decimal(static_cast<double>(bytes) / (1 << 30), 1) + " GiB";
}

}  // namespace

Record Alert::record() const {
  return Record{"alert"}.set("step", step).set("kind", kind).set("message", message);
}

LossWatch::LossWatch() : LossWatch(Options{}) {}
LossWatch::LossWatch(Options options) : options_(options) {}

std::optional<Alert> LossWatch::observe(std::int64_t step, double loss) {
  const auto before = std::exchange(last_step_, step);
  if (!std::isfinite(loss)) {
    if (std::exchange(has_told_not_finite_, true)) return std::nullopt;
    return Alert{"loss_not_finite", step,
                 text("The loss is ", loss, " at step ", step,
                      ". Lower the learning rate or clip gradients, and look for bad samples and divisions by zero.")};
  }
  const bool is_learning = learned_ < options_.window;
  const bool is_above = !is_learning && loss > mean_ + options_.deviations * std::sqrt(variance_) &&
                        loss > mean_ + options_.share * std::abs(mean_);
  if (!is_above) {
    above_ = 0;
    // An exponential mean and variance; in the beginning those of all values so far.
    const double weight = 1.0 / static_cast<double>(std::min<std::int64_t>(++learned_, options_.window));
    const double difference = loss - mean_;
    mean_ += weight * difference;
    variance_ = (1.0 - weight) * (variance_ + weight * difference * difference);
    return std::nullopt;
  }
  if (above_ == 0) first_above_ = before + 1;
  if (++above_ < options_.steps_in_a_row || std::exchange(has_told_jump_, true)) return std::nullopt;
  return Alert{
      "loss_jump", step,
      text("The loss jumped from about ", format_figure(mean_), " to ", format_figure(loss), " at step ", first_above_,
           ". Go back to an earlier checkpoint with a lower learning rate or gradient clipping, and check the "
           "data of that step.")};
}

SlowRankWatch::SlowRankWatch() : SlowRankWatch(Options{}) {}
SlowRankWatch::SlowRankWatch(Options options) : options_(options) {}

std::optional<Alert> SlowRankWatch::observe(std::int64_t step, std::span<const double> seconds) {
  slow_.resize(seconds.size());
  if (seconds.size() < 2) return std::nullopt;
  // Only the slowest rank can exceed the others' median for long; the median without it stands for them.
  const auto slowest = static_cast<std::size_t>(std::ranges::max_element(seconds) - seconds.begin());
  std::vector<double> others{seconds.begin(), seconds.end()};
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(slowest));
  const double median = detail::percentile(std::move(others), 0.5);
  std::optional<Alert> alert;
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    if (seconds[rank] <= std::max((1.0 + options_.share) * median, median + options_.seconds)) {
      slow_[rank] = std::max(slow_[rank] - 2, 0);
    } else if (++slow_[rank] >= options_.steps && !alert && told_.insert(rank).second) {
      alert = Alert{
          "slow_rank", step,
          text("Rank ", rank, " is slower than the others: its steps take ", percent(seconds[rank] / median - 1.0),
               " longer, and all ranks wait for it. Compare its host with the others: other processes, "
               "clocks, CPU binding, and the storage that it reads.")};
    }
  }
  return alert;
}

StarvationWatch::StarvationWatch() : StarvationWatch(Options{}) {}
StarvationWatch::StarvationWatch(Options options) : options_(options) {}

std::optional<Alert> StarvationWatch::observe(std::int64_t step, double step_s, double wait_s) {
  step_s_ += step_s;
  wait_s_ += wait_s;
  if (++steps_ < options_.steps) return std::nullopt;
  const double share = wait_s_ / step_s_;
  const auto steps = step - std::exchange(window_begin_, step);
  step_s_ = wait_s_ = 0.0;
  steps_ = 0;
  if (!std::exchange(is_warm_, true) || !(share > options_.share) || std::exchange(has_told_, true)) {
    return std::nullopt;
  }
  return Alert{"data_starvation", step,
               text("The model waits for data: ", percent(share), " of the time of the last ", steps,
                    " steps. Add loader workers, cache remote files on a local disk, or store smaller images.")};
}

MemoryWatch::MemoryWatch() : MemoryWatch(Options{}) {}
MemoryWatch::MemoryWatch(Options options) : options_(options) {}

std::optional<Alert> MemoryWatch::observe(std::int64_t step, std::int64_t used_bytes, std::int64_t limit_bytes) {
  most_ = std::max(most_, used_bytes);
  if (++steps_ < options_.steps) return std::nullopt;
  if (!windows_.empty() && most_ <= windows_.back().most) windows_.clear();
  windows_.push_back({.most = most_, .last_step = step});
  most_ = 0;
  steps_ = 0;
  // One more than `windows`: so often it has grown.
  if (windows_.size() > static_cast<std::size_t>(options_.windows) + 1) windows_.pop_front();
  const auto growth = windows_.back().most - windows_.front().most;
  if (windows_.size() <= static_cast<std::size_t>(options_.windows) || growth < options_.bytes ||
      std::exchange(has_told_, true)) {
    return std::nullopt;
  }
  const auto steps = step - windows_.front().last_step;
  std::string forecast;
  if (limit_bytes > windows_.back().most) {
    const double left = static_cast<double>(limit_bytes - windows_.back().most) / static_cast<double>(growth);
    forecast = text(", and reaches the limit of ", gibibytes(limit_bytes), " in about ",
                    std::llround(left * static_cast<double>(steps)), " steps");
  }
  return Alert{"memory_growth", step,
               text("Memory grew from ", gibibytes(windows_.front().most), " to ", gibibytes(windows_.back().most),
                    " in the last ", steps, " steps without a pause", forecast,
                    ". Look for tensors that are kept with their graph, such as losses summed without item().")};
}

ThrottlingWatch::ThrottlingWatch() : ThrottlingWatch(Options{}) {}
ThrottlingWatch::ThrottlingWatch(Options options) : options_(options) {}

std::optional<Alert> ThrottlingWatch::observe_quota(std::int64_t step, std::int64_t periods, std::int64_t throttled) {
  constexpr std::int64_t kFewestPeriods = 100;
  if (periods_ < 0 || periods < periods_) {
    periods_ = periods;
    throttled_ = throttled;
  }
  if (periods - periods_ < kFewestPeriods) return std::nullopt;
  const double share = static_cast<double>(throttled - throttled_) / static_cast<double>(periods - periods_);
  periods_ = periods;
  throttled_ = throttled;
  if (!(share > options_.share) || std::exchange(has_told_quota_, true)) return std::nullopt;
  return Alert{"cpu_throttling", step,
               text("The container's CPU quota stopped its threads in ", percent(share),
                    " of the scheduler's periods. Raise the container's CPU limit, or use fewer threads: "
                    "OMP_NUM_THREADS and loader workers.")};
}

std::optional<Alert> ThrottlingWatch::observe_clocks(std::int64_t step, std::int64_t reductions) {
  if (first_reductions_ < 0) first_reductions_ = reductions;
  const auto count = reductions - first_reductions_;
  if (count <= options_.reductions || std::exchange(has_told_clocks_, true)) return std::nullopt;
  return Alert{"clock_throttling", step,
               text("The processors reduced their clocks ", count,
                    " times since the start because of heat or power. Check the cooling and the power limit of this "
                    "host.")};
}

}  // namespace libtrain
