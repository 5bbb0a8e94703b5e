// What a training loop does between steps, and at its end.

#include <cmath>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/stop_request.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/sync/replica_check.hpp>
#include <libtrain/train/detail/checkpoint_parts.hpp>
#include <libtrain/train/detail/peak_memory.hpp>
#include <libtrain/train/detail/training_loop.hpp>
#include <libtrain/train/evaluate.hpp>
#include <libtrain/train/require_finite.hpp>
#include <libtrain/train/synchronization_summary.hpp>

namespace libtrain::detail {

// The host runs ahead of a GPU: the time of the steps that it has queued belongs to the interval.
void TrainingLoop::wait_for_queued_steps() {
  const auto& device = context_.device();
  if (device.is_cpu() || interval_.steps == 0) return;
  const Stopwatch stopwatch;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
  interval_.seconds += stopwatch.seconds();
}

void TrainingLoop::record_interval() {
  wait_for_queued_steps();
  // Without steps there may still be values: of a run that was stopped after the last step of an epoch.
  if (interval_.steps == 0 && !progress_->means.has_record()) return;
  const double waited = seconds_waiting_for_communication();
  const double waiting = waited - interval_.seconds_waiting_before;
  const auto memory = static_cast<double>(memory_in_use(context_.device()));
  const double own = interval_.steps == 0 ? 0 : (interval_.seconds - waiting) / static_cast<double>(interval_.steps);
  const auto of_ranks = progress_->means.gather(communicator(), {own, memory});
  auto means = progress_->means.take_record();
  progress_->state.metrics = means;
  if (const auto rates = parts_.front()->learning_rates(); !rates.empty())
    means.emplace("learning_rate", rates.front());
  if (options_.max_gradient_norm) means.emplace("gradient_norm", parts_.front()->gradient_norm());
  TrainingRecords::Measured measured{.samples = interval_.samples,
                                     .seconds = interval_.seconds,
                                     .seconds_waiting_for_data = interval_.seconds_waiting_for_data,
                                     .seconds_waiting_for_communication = waiting};
  for (const auto& numbers : of_ranks) {
    measured.own_seconds.push_back(numbers.at(0));
    measured.memory_bytes.push_back(numbers.at(1));
  }
  records_->record_step(step(), epoch(), means, measured);
  interval_ = {.seconds_waiting_before = waited};
}

double TrainingLoop::seconds_waiting_for_communication() const {
  double seconds = 0;
  for (const auto& part : parts_) seconds += part->synchronizer().statistics().seconds_waiting;
  return seconds;
}

void TrainingLoop::evaluate(TrainerSteps& steps) {
  progress_->must_evaluate = !evaluations_.empty();
  if (evaluations_.empty()) return;
  wait_for_queued_steps();
  settle_parts();
  check_parts();
  const auto generators = own_generators(context_.device());
  std::optional<Values> values;
  {
    std::vector<optim::MovingAverage::Swap> swaps;
    for (const auto& part : parts_) {
      if (auto* const average = part->moving_average()) swaps.push_back(average->swap(part->module()));
      part->synchronizer().broadcast_buffers();
    }
    values = evaluate_from(0);
  }
  if (!values) {
    // All ranks ask, and the second time know the answer to the first.
    if (!must_stop_evaluation() && !must_stop_evaluation())
      throw UsageError("An evaluation has returned no values, although the run was not asked to stop.");
    // The evaluation is repeated as if it had not begun.
    set_own_generators(context_.device(), generators);
    stop(steps);
  }
  progress_->must_evaluate = false;
  progress_->state.evaluation = *values;
  evaluated_step_ = step();
  // Before the first step of an epoch, it is the end of the one before.
  records_->record("evaluation", step(), progress_->step_in_epoch > 0 ? epoch() : epoch() - 1, *values);
  compare_with_best();
}

std::map<std::string, double> TrainingLoop::evaluate_only() {
  const auto all = begin_once("evaluate()", nullptr);
  if (evaluations_.empty())
    throw UsageError("A trainer's evaluate() was called without evaluations. Add one with evaluate_with().");
  context_.metrics();  // fails before the evaluation if the output folder cannot be written
  open_records(all);
  settle_parts();
  check_parts();
  for (const auto& part : parts_) {
    part->synchronizer().broadcast_buffers();
    require_finite(part->module());
  }
  const auto found = evaluate_from(0);
  if (!found) throw UsageError("An evaluation has returned no values, although the run was not asked to stop.");
  const auto& values = *found;
  progress_->state.evaluation = values;
  records_->record("evaluation", 0, 0, values);
  records_->show_evaluation(values);
  records_->end(RunStatus::finished);
  for (const auto& [name, value] : values) context_.summary().set(name, value);
  return values;
}

// No later round compares the replicas after the last step.
void TrainingLoop::check_parts() {
  if (options_.synchronizer.replicas == Replicas::unchecked) return;
  for (const auto& part : parts_) check_replicas(part->module(), communicator());
}

// With the modules of this and all later parts in evaluation mode. std::nullopt if the run was asked to stop.
std::optional<TrainingLoop::Values> TrainingLoop::evaluate_from(std::size_t part) {
  if (part < parts_.size()) {
    const EvaluationMode mode(parts_[part]->module());
    return evaluate_from(part + 1);
  }
  std::optional<Autocast> autocast;
  begin_autocast(autocast);
  Values all;
  for (const auto& evaluation : evaluations_) {
    auto values = evaluation.values();
    if (!values) return std::nullopt;
    for (const auto& [name, value] : *values) require_metric_name(name);
    all.merge(*values);
    if (!values->empty())
      throw UsageError(text("Two evaluations give '", values->begin()->first, "'. Choose another name."));
  }
  if (stop_agreement_) stop_agreement_->settle();
  return all;
}

bool TrainingLoop::must_stop_evaluation() {
  return stop_agreement_ && stop_agreement_->must_stop(context_.stop_request().is_requested());
}

void TrainingLoop::compare_with_best() {
  if (!options_.checkpoints.enabled || options_.checkpoints.metric.empty()) return;
  const auto& metric = options_.checkpoints.metric;
  const auto found = state().evaluation.find(metric);
  if (found == state().evaluation.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : state().evaluation) names.push_back(name);
    require_metric_among(names);
  }
  const double value = found->second;
  const bool is_better = options_.checkpoints.best == CheckpointRetention::Best::highest
                             ? value > progress_->best_value
                             : value < progress_->best_value;
  if (!std::isnan(value) && (progress_->best_step < 0 || is_better)) {
    progress_->best_step = step();
    progress_->best_value = value;
    progress_->evaluations_without_improvement = 0;
    return;
  }
  if (++progress_->evaluations_without_improvement != options_.evaluations_without_improvement) return;
  if (context_.rank() != 0) return;
  log_info(text("The training ends at step ", step(), ": ", progress_->evaluations_without_improvement,
                " evaluations in a row have not improved '", metric, "', which was best at step ", progress_->best_step,
                "."));
}

// Once for each step: the state of the run does not change between steps.
void TrainingLoop::save(TrainerSteps& steps) {
  if (!checkpoint_) return;
  if (saved_step_ == step()) {
    // It was saved when the evaluation was cut short.
    if (is_best() && !was_saved_with_values_) checkpoint_->mark_best(step());
    return;
  }
  wait_for_queued_steps();
  const Stopwatch stopwatch;
  settle_parts();
  run_together(communicator(), "Saving a checkpoint", [&] {
    if (context_.rank() != 0) return;
    // What a checkpoint has. Those with such weights would soon replace all others.
    for (const auto& part : parts_) require_finite(part->module());
    context_.metrics().sync();  // what lies before a checkpoint is not recorded again
  });
  progress_->means.gather(communicator());
  progress_->mlflow_run = records_->mlflow_run();
  for (const auto& part : parts_) progress_->rates[part->name()] = part->rates();
  CheckpointPosition position{.step = step(), .epoch = epoch(), .loader = steps.state()};
  was_saved_with_values_ = evaluated_step_ == step();
  if (was_saved_with_values_) position.metrics = state().evaluation;
  checkpoint_->save(position);
  saved_step_ = step();
  seconds_saving_ += stopwatch.seconds();
}

void TrainingLoop::stop(TrainerSteps& steps) {
  if (!checkpoint_) {
    throw UsageError(
        "GradientSynchronizer::request_stop() was called for a part of a trainer without checkpoints. Call "
        "Trainer::end_training() on all ranks, or enable TrainerOptions::checkpoints.",
        ErrorScope::all_ranks);
  }
  // What end_epoch() would record when the run continues, but of rates and norms that are not in the checkpoint.
  if (now_.has_ended()) record_interval();
  save(steps);
  checkpoint_->wait();
  std::vector<std::string> reasons;
  const auto of_ranks = communicator().all_gather_bytes(context_.stop_request().reason());
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
    if (!of_ranks[rank].empty()) reasons.push_back(text(of_ranks[rank], " on rank ", rank));
  records_->end(RunStatus::stopped);
  summarize_run(steps);
  throw StoppedOnRequest(text(
      "The run has stopped at step ", step(), ", in epoch ", epoch() + 1,
      options_.epochs > 0 ? text(" of ", options_.epochs) : "", " (", join(reasons, ", "), "), with a checkpoint in '",
      checkpoint_->root().string(), "'. ",
      context_.resume() == "auto" ? "The same command" : "The same command, with --resume auto,", " continues it."));
}

void TrainingLoop::finish(TrainerSteps& steps) {
  settle_parts();
  if (checkpoint_) checkpoint_->wait();
  if (evaluated_step_ != step()) check_parts();
  // All ranks end with the model of the last checkpoint, which has rank 0's buffers. An evaluation of a moving average
  // has broadcast neither for good.
  for (const auto& part : parts_) part->broadcast_buffers();
  for (const auto& part : parts_) require_finite(part->module());
  if (checkpoint_ && progress_->best_step >= 0) find_best_checkpoint();
  records_->end(RunStatus::finished);
  summarize_run(steps);
  // A request that came too late is for the next trainer.
  if (checkpoint_ && !context_.stop_request().is_requested()) context_.end_stop_request();
}

// A value that has the name of a metric of the training becomes evaluation/NAME.
std::map<std::string, double> TrainingLoop::with_evaluation(std::map<std::string, double> metrics) const {
  for (const auto& [name, value] : state().evaluation)
    if (!metrics.emplace(name, value).second) metrics.emplace("evaluation/" + name, value);
  return metrics;
}

void TrainingLoop::summarize_run(TrainerSteps& steps) {
  auto& summary = context_.summary();
  summary.set("epochs", epoch()).set("steps", step());
  const auto samples = static_cast<double>(state().samples - samples_before_);
  if (samples > 0) {
    summary.set("samples_per_s", samples / stopwatch_.seconds());
  } else {
    summary.set("samples_per_s", nullptr);
  }
  for (const auto& [name, value] : with_evaluation(state().metrics)) summary.set(name, value);
  if (!best_checkpoint().empty()) summary.set("best_step", progress_->best_step).set("best", progress_->best_value);
  summary.set("seconds_waiting_for_communication", seconds_waiting_for_communication())
      .set("seconds_waiting_for_data", steps.statistics().seconds_waiting);
  if (checkpoint_) summary.set("seconds_saving_checkpoints", seconds_saving_);
  for (const auto& part : parts_) {
    summarize(context_, part->synchronizer(),
              parts_.size() == 1 ? "synchronization" : text("synchronization of ", part->name()));
  }
}

}  // namespace libtrain::detail
