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
/// The base rates are given, not read from the optimizer: one that was loaded, or has got its state from another rank,
/// holds rates to which the schedule has been applied already. One thread at a time, the one that calls the optimizer.
class LearningRate {
 public:
  /// Refers to `optimizer`, all of whose groups, later ones too, have the rate `base` where the factor is 1. Throws
  /// UsageError for a base that is not a finite number of 0 or more, for an empty schedule, and where groups have
  /// different rates now: one base would take the difference away.
  LearningRate(torch::optim::Optimizer& optimizer, double base, Schedule schedule);

  /// The same with a base for each group, in their order. Throws UsageError for another number of bases than groups.
  LearningRate(torch::optim::Optimizer& optimizer, std::vector<double> bases, Schedule schedule);

  /// Gives every group its base times the schedule's factor of this step. Throws UsageError where there are groups
  /// without a base or bases without a group by now, and where a rate would not be a finite number of 0 or more; then
  /// no rate has changed.
  void set(std::int64_t step);

  /// What the first group has been given, for logs.
  double of_first_group() const;

 private:
  void require_base_of_each_group() const;

  torch::optim::Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> bases_;  // one for all groups, or one for each
  bool is_common_ = false;
};

}  // namespace libtrain::optim
