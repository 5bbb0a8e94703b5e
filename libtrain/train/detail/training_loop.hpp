#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/sampler.hpp>
#include <libtrain/optim/learning_rate.hpp>
#include <libtrain/train/autocast.hpp>
#include <libtrain/train/checkpoint.hpp>
#include <libtrain/train/detail/run_configuration.hpp>
#include <libtrain/train/detail/stop_agreement.hpp>
#include <libtrain/train/detail/trainer_progress.hpp>
#include <libtrain/train/detail/training_records.hpp>
#include <libtrain/train/trainer.hpp>

namespace libtrain::detail {

/// fit() of a Trainer: epochs, steps, and what happens between steps; and evaluate(). training_loop.cpp has the way of
/// a batch, in its order; training_loop_events.cpp has records, evaluations, checkpoints, and the ends of a run.
///
/// The state of a run (TrainerProgress, the parts, the loader's position) belongs to one step between make_step() and
/// the next one: there checkpoints are written. An epoch ends after its last step with an evaluation, and then counts;
/// a run that stops in that evaluation has a checkpoint at the end of the data of an epoch that does not count yet.
class TrainingLoop {
 public:
  /// Throws UsageError for options out of range.
  TrainingLoop(Context& context, TrainerOptions options);

  TrainerPart& add(const std::string& name, torch::nn::Module& module, TrainerOptimizer optimizer);
  void add_state(const std::string& name, std::unique_ptr<Checkpointable> state);
  void fit(TrainerSteps& steps);
  std::map<std::string, double> evaluate_only();

  using Values = std::map<std::string, double>;
  struct EvaluationOf {
    std::vector<std::string> names = {};                 ///< of the values; empty if they are not known before
    std::function<std::optional<Values>()> values = {};  ///< std::nullopt if it was cut short
  };
  void add_evaluation(EvaluationOf evaluation) { evaluations_.push_back(std::move(evaluation)); }
  using Callback = std::function<void(const TrainingState&)>;
  void after_step(Callback callback) { after_step_.push_back(std::move(callback)); }
  void after_epoch(Callback callback) { after_epoch_.push_back(std::move(callback)); }

  Communicator& communicator() const { return context_.communicator(); }
  const TrainingState& state() const { return progress_->state; }
  Trackers& trackers();
  TrainerPart& part(const std::string& name) const;
  void end_training() { progress_->was_ended = true; }
  std::filesystem::path best_checkpoint() const;

  /// See Trainer.
  bool must_stop_evaluation();

 private:
  // The pass over the data that is under way.
  struct Epoch {
    std::uint64_t from = 0;  // its first position in the order of the samples
    std::int64_t batches = 0;
    std::int64_t batch = 0;  // the next one
    bool has_ended() const { return batch == batches; }
  };

  // The batches of a step.
  struct Plan {
    std::int64_t batches = 0;
    std::int64_t last = -1;  // the one after which this rank's gradients are complete; -1: it has no samples
    std::int64_t own = 0;    // samples
    std::int64_t all = 0;    // samples of all ranks
    bool is_even = true;     // ranks have equally many
  };

  // What a batch of the present step has returned.
  struct StepValue {
    std::string name;
    at::Tensor value;
    double samples = 0;
  };

  // Since the last record.
  struct Interval {
    std::int64_t steps = 0;
    std::int64_t samples = 0;
    double seconds = 0;
    double seconds_waiting_for_data = 0;
    double seconds_waiting_before = 0;  // for communication, until the last record
  };

  static bool is_due(std::int64_t count, std::int64_t every) { return every > 0 && count % every == 0; }

  std::int64_t& step() { return progress_->state.step; }
  std::int64_t& epoch() { return progress_->state.epoch; }
  std::vector<TrainerPart*> parts() const;
  bool is_over() const;

  RunConfiguration begin_once(const char* method, const data::Sampler* sampler);
  void begin(TrainerSteps& steps);
  void open_records(const RunConfiguration& configuration);
  void require_batches(const data::Sampler& sampler) const;
  void warn_of_repeated_data(const data::Sampler& sampler) const;
  void require_last_steps(const data::Sampler& sampler) const;
  std::uint64_t first_sample(std::uint64_t epoch) const;
  std::vector<SyncBatchNormImpl*> batch_norms() const;
  bool joins() const;
  std::int64_t steps_of_epoch(const data::Sampler& sampler, std::int64_t number) const;
  std::int64_t steps_of_epochs(const data::Sampler& sampler, std::int64_t count) const;
  bool ends_by_steps(const data::Sampler& sampler) const;
  void make_schedule(const data::Sampler& sampler, std::int64_t steps_per_epoch);
  void follow_schedule(const data::Sampler& sampler);
  void require_metric_of_evaluations() const;
  void require_metric_among(const std::vector<std::string>& names) const;
  RunConfiguration configuration(const data::Sampler* sampler) const;
  void resume(const RunConfiguration& configuration);
  void find_best_checkpoint();
  void warn_of_lost_state() const;

  void train_epoch(TrainerSteps& steps);
  void begin_epoch(TrainerSteps& steps);
  void make_step(TrainerSteps& steps);
  data::Sampler::StepSamples samples_of(const data::Sampler& sampler, std::int64_t batch) const;
  Plan plan_step(const data::Sampler& sampler) const;
  void prepare_parts();
  void settle_parts();
  void check_parts();
  void run_batch(TrainerSteps& steps, const TrainerPart::Batch& batch, std::int64_t samples);
  void require_ended_rounds() const;
  void add_step_values();
  void begin_autocast(std::optional<Autocast>& autocast) const;
  void follow_step(TrainerSteps& steps);
  void end_epoch(TrainerSteps& steps);

  void wait_for_queued_steps();
  void record_interval();
  double seconds_waiting_for_communication() const;
  void evaluate(TrainerSteps& steps);
  std::optional<Values> evaluate_from(std::size_t part);
  void compare_with_best();
  bool is_best() const { return evaluated_step_ == state().step && progress_->best_step == state().step; }
  void save(TrainerSteps& steps);
  [[noreturn]] void stop(TrainerSteps& steps);
  void finish(TrainerSteps& steps);
  std::map<std::string, double> with_evaluation(std::map<std::string, double> metrics) const;
  void summarize_run(TrainerSteps& steps);

  Context& context_;
  const TrainerOptions options_;
  std::vector<std::shared_ptr<Communicator>> communicators_;  // of the parts after the first
  std::vector<std::unique_ptr<TrainerPart>> parts_;
  optim::Schedule schedule_;  // empty: rates are left alone
  std::vector<optim::LearningRate> rates_;
  bool has_begun_ = false;

  const std::shared_ptr<TrainerProgress> progress_ = std::make_shared<TrainerProgress>();
  std::vector<std::pair<std::string, std::unique_ptr<Checkpointable>>> states_;  // until there is a checkpoint
  std::optional<Checkpoint> checkpoint_;
  std::optional<data::LoaderState> resumed_;  // where the data are continued
  std::int64_t saved_step_ = -1;
  bool was_saved_with_values_ = false;  // of an evaluation in saved_step_
  double seconds_saving_ = 0;
  std::optional<TrainingRecords> records_;
  std::optional<StopAgreement> stop_agreement_;
  std::vector<EvaluationOf> evaluations_;
  std::vector<Callback> after_step_;
  std::vector<Callback> after_epoch_;
  Epoch now_;
  Interval interval_;
  std::vector<StepValue> step_values_;  // of the present step
  std::int64_t evaluated_step_ = -1;
  std::int64_t samples_before_ = 0;  // of the runs that this one continues
  Stopwatch stopwatch_;
};

}  // namespace libtrain::detail
