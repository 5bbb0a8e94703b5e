#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace libtrain::optim {

/// The learning rate over a run: maps a step (0 for the first) to the factor of the base learning rate. A pure
/// function, so that resuming at a step needs only the step (and, for LearningRate, the base rates). It is called on
/// every rank with the same step and returns the same bits. Steps below 0 count as 0.
///
/// For a schedule in epochs, see by_epoch(), or multiply the epochs by the loader's number of steps in an epoch.
using Schedule = std::function<double(std::int64_t step)>;

/// Always 1.
Schedule constant();

struct StepDecay {
  std::int64_t every = 1;  ///< steps, at least 1
  double factor = 0.1;     ///< more than 0
};
/// factor^floor(step / every): torch.optim.lr_scheduler.StepLR.
Schedule step_decay(const StepDecay& options);

struct MultiStepDecay {
  std::vector<std::int64_t> milestones = {};  ///< steps, in ascending order
  double factor = 0.1;                        ///< more than 0
};
/// factor^m, with m the number of milestones at or before the step: MultiStepLR.
Schedule multi_step_decay(MultiStepDecay options);

struct CosineDecay {
  std::int64_t steps = 1;   ///< at least 1
  double final_factor = 0;  ///< from step `steps` on
};
/// final + (1 - final) (1 + cos(pi step / steps)) / 2: Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts.
Schedule cosine_decay(const CosineDecay& options);

struct PolynomialDecay {
  std::int64_t steps = 1;   ///< at least 1
  double power = 1;         ///< more than 0; 1 is a straight line, as for fine-tuning BERT and RoBERTa
  double final_factor = 0;  ///< from step `steps` on
};
/// final + (1 - final) (1 - step / steps)^power: PolynomialLR.
Schedule polynomial_decay(const PolynomialDecay& options);

struct WarmUp {
  std::int64_t steps = 0;   ///< at least 0; 0 leaves the schedule as it is
  double first_factor = 0;  ///< of step 0
};
/// A straight line from `first_factor` at step 0 to the factor of `then` at step `steps`, and `then` after that. `then`
/// is called with the run's steps, too. Throws UsageError if `then` begins above `first_factor` and has decayed to it
/// or below at step `steps`, such as a decay that is not longer than the warm-up: the rate would never rise.
///
/// With a rate that was scaled by the number of ranks, a first_factor of 1 / world_size starts at the rate of a single
/// rank: Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2.
Schedule warm_up(const WarmUp& options, Schedule then);

/// A schedule in epochs for a run in steps: the factor of `epochs` at floor(step / steps_per_epoch), the same in all
/// steps of an epoch, as for a scheduler that PyTorch steps once an epoch. Throws UsageError for less than one step per
/// epoch, and for an empty schedule.
///
///   by_epoch(multi_step_decay({.milestones = {30, 60, 80}}), steps)
Schedule by_epoch(Schedule epochs, std::int64_t steps_per_epoch);

/// learning_rate * ranks: N ranks take N times the samples in a step, so a step may be N times as long. The same paper,
/// section 2.1; for SGD, up to batches of about 8192 in their experiments. Throws UsageError for less than one rank,
/// and for a rate that is not a finite number of 0 or more.
double scaled_linearly(double learning_rate, int ranks);

/// learning_rate * sqrt(ranks), which suits Adam and LAMB better: You et al., "Large Batch Optimization for Deep
/// Learning", ICLR 2020, section 4. Throws UsageError as scaled_linearly.
double scaled_by_square_root(double learning_rate, int ranks);

}  // namespace libtrain::optim
