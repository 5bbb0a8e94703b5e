#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/optim/named_tensors.hpp>
#include <libtrain/train/checkpoint.hpp>
#include <libtrain/train/detail/metric_means.hpp>
#include <libtrain/train/trainer.hpp>

namespace libtrain::detail {

/// What a Trainer knows of its run, and saves in checkpoints; the same on all ranks.
struct TrainerProgress {
  TrainingState state = {};
  MetricMeans means = {};
  std::int64_t step_in_epoch = 0;
  std::int64_t steps_per_epoch = 0;  ///< of the run that was saved
  std::int64_t ends_by_steps = -1;   ///< whether `max_steps` ended the training when it began; -1: not known
  std::int64_t schedule_offset = 0;  ///< of the schedule's step from that of the run, since the number of ranks changed
  std::map<std::string, std::vector<double>> rates = {};          ///< of each part: TrainerPart::rates()
  std::map<std::string, std::vector<double>> initial_rates = {};  ///< the same when fit() was called
  std::string best_metric = {};                                   ///< "accuracy, highest": of which the best is
  std::int64_t best_step = -1;                                    ///< of the evaluation with the best value; -1: none
  double best_value = 0;
  std::int64_t evaluations_without_improvement = 0;
  bool must_evaluate = false;  ///< an evaluation was cut short
  bool was_ended = false;      ///< by the program
  std::string mlflow_run = {};

  /// Apart from `state.step` and `state.epoch`, which are those of the checkpoint.
  optim::NamedTensors tensors() const;
  void load(const optim::NamedTensors& tensors);
};

/// The part of a checkpoint.
class TrainerProgressPart final : public Checkpointable {
 public:
  explicit TrainerProgressPart(std::shared_ptr<TrainerProgress> progress) : progress_(std::move(progress)) {}
  optim::NamedTensors tensors() override { return progress_->tensors(); }
  void load(const optim::NamedTensors& tensors) override { progress_->load(tensors); }

 private:
  const std::shared_ptr<TrainerProgress> progress_;
};

}  // namespace libtrain::detail
