#pragma once

#include <cstdint>
#include <vector>

#include <torch/optim/optimizer.h>

#include <libtrain/optim/schedule.hpp>

namespace libtrain::optim {

/// Sets an optimizer's learning rates from a schedule, before each step:
///
///   torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9)};
///   LearningRate rate{sgd, kRate, warm_up({.steps = 500}, cosine_decay({.steps = 10000}))};
///   rate.set(step);
///
/// The base rates are given, not read from the optimizer: an optimizer that was loaded, or got its state from another
/// rank, has rates to which the schedule has already been applied. Not thread-safe: call it on the thread that calls
/// the optimizer.
class LearningRate {
 public:
  /// Refers to `optimizer`, all of whose groups, including later ones, have the rate `base` when the factor is 1.
  /// Throws UsageError for a base that is not a finite number of 0 or more, for an empty schedule, and if groups have
  /// different rates now, since a single base would remove the difference.
  LearningRate(torch::optim::Optimizer& optimizer, double base, Schedule schedule);

  /// The same with a base for each group, in their order. Throws UsageError for another number of bases than groups.
  LearningRate(torch::optim::Optimizer& optimizer, std::vector<double> bases, Schedule schedule);

  /// Sets the rate of every group to its base times the schedule's factor of this step. Throws UsageError, and changes
  /// no rate, if there are groups without a base or bases without a group, and if a rate would not be a finite number
  /// of 0 or more.
  void set(std::int64_t step);

  /// The current rate of the first group, for logs.
  double of_first_group() const;

 private:
  void require_base_of_each_group() const;

  torch::optim::Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> bases_;  // one for all groups, or one for each
  bool is_common_ = false;
};

}  // namespace libtrain::optim
