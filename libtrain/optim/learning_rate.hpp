#pragma once

#include <cstdint>
#include <vector>

#include <torch/optim/optimizer.h>

#include <libtrain/optim/schedule.hpp>

namespace libtrain::optim {

/// Sets an optimizer's learning rates from a schedule, before each step:
///
///   LearningRate rate{sgd, warm_up({.steps = 500}, cosine_decay({.steps = 10000}))};
///   rate.set(step);
///
/// Each parameter group keeps its own rate as the base of the factor. One thread at a time, the one that calls the
/// optimizer.
class LearningRate {
 public:
  /// Refers to `optimizer`, whose groups' rates at this moment are the bases. Throws UsageError for an empty schedule.
  LearningRate(torch::optim::Optimizer& optimizer, Schedule schedule);

  /// Gives every group its base times the schedule's factor of this step. Throws UsageError where groups have been
  /// added or removed since, or where the factor is not a finite number of 0 or more.
  void set(std::int64_t step);

  /// What the first group has been given, for logs.
  double of_first_group() const;

 private:
  torch::optim::Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> bases_;
};

}  // namespace libtrain::optim
