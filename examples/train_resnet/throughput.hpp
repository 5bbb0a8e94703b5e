#pragma once

#include <cmath>
#include <cstdint>
#include <iomanip>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/libtrain.hpp>

/// Images per second, as Horovod's synthetic benchmark reports them: the mean over iterations of some steps each, after
/// a warm-up, and +-1.96 standard deviations, between which 95% of normally distributed iterations lie.
class Throughput {
 public:
  /// Without a warm-up the first iteration begins here.
  Throughput(std::int64_t warm_up_steps, std::int64_t steps_per_iteration)
      : steps_per_iteration_(steps_per_iteration),
        next_end_(warm_up_steps > 0 ? warm_up_steps : steps_per_iteration),
        counts_(warm_up_steps == 0) {}

  /// Called after each step with the images that all ranks have used so far. Returns whether an iteration has ended
  /// that counts.
  bool after_step(std::int64_t images) {
    if (++steps_ < next_end_) return false;
    next_end_ = steps_ + steps_per_iteration_;
    const auto of_iteration = static_cast<double>(images - std::exchange(images_, images));
    const double seconds = stopwatch_.restart();
    const bool counts = std::exchange(counts_, true);
    if (counts) rates_.push_back(of_iteration / seconds);
    return counts;
  }

  /// The current iteration does not count: called after an epoch, for the time of its evaluation.
  void leave_out_iteration() { counts_ = false; }

  std::size_t iterations() const { return rates_.size(); }
  double last() const { return rates_.back(); }

  double mean() const {
    double sum = 0;
    for (const double rate : rates_) sum += rate;
    return sum / static_cast<double>(rates_.size());
  }

  /// 1.96 standard deviations of the iterations.
  double interval() const {
    double squares = 0;
    for (const double rate : rates_) squares += (rate - mean()) * (rate - mean());
    return 1.96 * std::sqrt(squares / static_cast<double>(rates_.size()));
  }

  std::string describe(int ranks) const {
    return libtrain::text(std::fixed, std::setprecision(1), "images/s per rank: ", mean() / ranks, " +-",
                          interval() / ranks, "; on ", ranks, ranks == 1 ? " rank: " : " ranks: ", mean(), " +-",
                          interval());
  }

 private:
  std::int64_t steps_per_iteration_;
  std::int64_t steps_ = 0;
  std::int64_t next_end_;
  std::int64_t images_ = 0;
  bool counts_;                // the warm-up does not
  std::vector<double> rates_;  // of all ranks, by iteration
  libtrain::Stopwatch stopwatch_;
};
