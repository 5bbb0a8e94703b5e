#include <libtrain/train/detail/training_loop.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/base/trace.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>
#include <libtrain/train/channels_last.hpp>
#include <libtrain/train/detail/number_bytes.hpp>
#include <libtrain/train/detail/peak_memory.hpp>

namespace libtrain::detail {

namespace {

void require_at_least(const char* name, std::int64_t value, std::int64_t minimum) {
  if (value >= minimum) return;
  throw UsageError(text("TrainerOptions::", name, " is ", value, ". Set it to ", minimum, " or more."));
}

void check(const TrainerOptions& options) {
  require_at_least("max_steps", options.max_steps, 0);
  require_at_least("epochs", options.epochs, options.max_steps > 0 ? 0 : 1);
  require_at_least("accumulate", options.accumulate, 1);
  require_at_least("evaluate_every_epochs", options.evaluate_every_epochs, 0);
  require_at_least("evaluate_every_steps", options.evaluate_every_steps, 0);
  require_at_least("evaluations_without_improvement", options.evaluations_without_improvement, 0);
  require_at_least("log_every_steps", options.log_every_steps, 1);
  require_at_least("checkpoints.every_epochs", options.checkpoints.every_epochs, 0);
  require_at_least("checkpoints.every_steps", options.checkpoints.every_steps, 0);
  const bool has_metric = options.checkpoints.enabled && !options.checkpoints.metric.empty();
  if (options.evaluations_without_improvement > 0 && !has_metric) {
    throw UsageError(
        "TrainerOptions::evaluations_without_improvement needs a metric to improve. Set "
        "TrainerOptions::checkpoints.metric to the name of one of the evaluation's values.");
  }
}

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::bfloat16:
      return "bfloat16";
    case Precision::float16:
      return "float16";
    default:
      return "float32";
  }
}

std::int64_t ceiling_of_ratio(std::int64_t number, std::int64_t divisor) {
  return (number + divisor - 1) / divisor;
}

std::int64_t integer(std::uint64_t number) {
  return static_cast<std::int64_t>(number);
}

// Collectives of all communicators of a GPU need the same order on all ranks. A synchronizer knows its own only.
bool may_differ_in_order(const SynchronizerOptions& options) {
  return options.unused == UnusedParameters::allowed && options.overlap == Overlap::backward;
}

}  // namespace

TrainingLoop::TrainingLoop(Context& context, TrainerOptions options) : context_(context), options_(std::move(options)) {
  check(options_);
  // The scaler skips the steps of such losses.
  if (options_.precision == Precision::float16) progress_->means.leave_out_non_finite();
}

TrainerPart& TrainingLoop::add(const std::string& name, torch::nn::Module& module, TrainerOptimizer optimizer) {
  if (has_begun_)
    throw UsageError(text("The part '", name, "' was added to a trainer after fit() or evaluate(). Add it before."));
  module.to(context_.device());
  if (options_.channels_last) to_channels_last(module);
  if (options_.sync_batch_norm) replace_batch_norms(module, communicator());
  if (!parts_.empty() && options_.synchronizer.wire_format) {
    throw UsageError(text("TrainerOptions::synchronizer.wire_format is '", options_.synchronizer.wire_format->name(),
                          "', which serves one part, but the trainer gets a second one, '", name,
                          "'. Leave it empty for a trainer of several parts."));
  }
  if (!parts_.empty() && context_.world_size() > 1 && !context_.device().is_cpu() &&
      may_differ_in_order(options_.synchronizer)) {
    throw UsageError(
        text("TrainerOptions::synchronizer allows unused parameters and reduces in backward(), but the trainer gets a "
             "second part, '",
             name, "', on ", context_.device(),
             ", where ranks that leave out different parameters would begin the collectives of the parts in different "
             "orders. Set its overlap to Overlap::none."));
  }
  // Parts may reduce at the same time.
  if (!parts_.empty()) communicators_.push_back(communicator().split(0, context_.rank()));
  auto synchronizer = options_.synchronizer;
  synchronizer.trace = context_.trace();
  parts_.push_back(std::make_unique<TrainerPart>(
      name, module, optimizer, communicators_.empty() ? communicator() : *communicators_.back(),
      TrainerPart::Options{
          .max_gradient_norm = options_.max_gradient_norm,
          .loss_scaler = options_.precision == Precision::float16 ? std::optional{options_.loss_scaler} : std::nullopt,
          .moving_average = options_.moving_average,
          .synchronizer = std::move(synchronizer)}));
  return *parts_.back();
}

void TrainingLoop::add_state(const std::string& name, std::unique_ptr<Checkpointable> state) {
  if (has_begun_)
    throw UsageError(text("The state '", name, "' was added to a trainer after fit() or evaluate(). Add it before."));
  states_.emplace_back(name, std::move(state));
}

Trackers& TrainingLoop::trackers() {
  if (!records_) throw UsageError("A trainer has no trackers before fit() or evaluate(). Use them in a callback.");
  return records_->trackers();
}

TrainerPart& TrainingLoop::part(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& part : parts_) {
    if (part->name() == name) return *part;
    names.push_back(part->name());
  }
  throw UsageError(text("The trainer has no part '", name, "', but ", names.empty() ? "none" : join(names, ", "),
                        ". Add it, or correct the name."));
}

std::filesystem::path TrainingLoop::best_checkpoint() const {
  if (!checkpoint_ || progress_->best_step < 0) return {};
  return checkpoint_->root() / checkpoint_folder_name(progress_->best_step);
}

std::vector<TrainerPart*> TrainingLoop::parts() const {
  std::vector<TrainerPart*> all;
  for (const auto& part : parts_) all.push_back(part.get());
  return all;
}

bool TrainingLoop::is_over() const {
  return (options_.epochs > 0 && state().epoch >= options_.epochs) ||
         (options_.max_steps > 0 && state().step >= options_.max_steps) || progress_->was_ended ||
         (options_.evaluations_without_improvement > 0 &&
          progress_->evaluations_without_improvement >= options_.evaluations_without_improvement);
}

// ---- fit()

void TrainingLoop::fit(TrainerSteps& steps) {
  begin(steps);
  if (is_over() && !progress_->must_evaluate && context_.rank() == 0) {
    log_warning(text("The run in '", context_.output_directory().string(), "' has finished after ", step(),
                     " steps: nothing is trained. Set another --output for a new run, or --resume none to start "
                     "again."));
  }
  stopwatch_.restart();
  while (!is_over() || progress_->must_evaluate) train_epoch(steps);
  finish(steps);
}

// Returns the configuration, which all ranks have. Without a sampler, if nothing is trained.
RunConfiguration TrainingLoop::begin_once(const char* method, const data::Sampler* sampler) {
  if (has_begun_) {
    throw UsageError(text("A trainer's ", method, " was called after its fit() or evaluate(). Create another Trainer, ",
                          "with another TrainerCheckpoints::folder."));
  }
  if (parts_.empty())
    throw UsageError(text("A trainer's ", method, " was called without modules. Add them with add()."));
  has_begun_ = true;
  if (sampler != nullptr) {
    require_batches(*sampler);
    require_metric_of_evaluations();
  }
  auto all = configuration(sampler);
  std::vector<std::string> lines;
  for (const auto& [name, value] : all) lines.push_back(text(name, " = ", redact_value(name, value)));
  require_agreement({.subject = "The configuration of the training",
                     .unit = "settings",
                     .advice = "Give all ranks the same options."},
                    lines, communicator());
  if (sampler != nullptr) warn_of_repeated_data(*sampler);
  return all;
}

void TrainingLoop::begin(TrainerSteps& steps) {
  const auto all = begin_once("fit()", &steps.sampler());
  // A schedule that is refused must not leave a run behind.
  make_schedule(steps.sampler(), steps_of_epoch(steps.sampler(), 0));
  if (options_.checkpoints.enabled) resume(all);
  require_last_steps(steps.sampler());
  context_.metrics();  // fails before the training if the output folder cannot be written
  follow_schedule(steps.sampler());
  if (step() == 0) {
    for (const auto& part : parts_) part->restart_average();
  }
  samples_before_ = state().samples;
  open_records(all);
}

void TrainingLoop::open_records(const RunConfiguration& configuration) {
  records_.emplace(context_, NamedValues{configuration.begin(), configuration.end()},
                   TrainingRecords::Options{.log_every_steps = options_.log_every_steps,
                                            .tensor_board = options_.tensor_board,
                                            .mlflow = options_.mlflow,
                                            .mlflow_run = progress_->mlflow_run,
                                            .memory_limit_bytes = memory_limit(context_.device())});
}

// A misspelled metric is an error now, not after the first evaluation.
void TrainingLoop::require_metric_of_evaluations() const {
  if (!options_.checkpoints.enabled || options_.checkpoints.metric.empty()) return;
  std::vector<std::string> names;
  for (const auto& evaluation : evaluations_) {
    if (evaluation.names.empty()) return;
    names.insert(names.end(), evaluation.names.begin(), evaluation.names.end());
  }
  require_metric_among(names);
}

void TrainingLoop::require_metric_among(const std::vector<std::string>& names) const {
  if (std::ranges::find(names, options_.checkpoints.metric) != names.end()) return;
  throw UsageError(text("No evaluation gives '", options_.checkpoints.metric,
                        "', which TrainerCheckpoints::metric names, but ", names.empty() ? "none" : join(names, ", "),
                        ". Correct the name, or add the evaluation."));
}

// The options of the command line, and what the program decides.
RunConfiguration TrainingLoop::configuration(const data::Sampler* sampler) const {
  RunConfiguration all;
  for (const auto& [name, value] : context_.fixed_options()) all.emplace(text("--", name), value);
  all.emplace("epochs", text(options_.epochs));
  all.emplace("max_steps", text(options_.max_steps));
  all.emplace("accumulate", text(options_.accumulate));
  all.emplace("precision", name_of(options_.precision));
  all.emplace("sync_batch_norm", options_.sync_batch_norm ? "true" : "false");
  if (options_.max_gradient_norm) all.emplace("max_gradient_norm", text(*options_.max_gradient_norm));
  if (sampler != nullptr && sampler->max_tokens() > 0) {
    const bool is_padded = sampler->token_count() == data::TokenCount::padded;
    all.emplace("max_tokens", text(sampler->max_tokens(), is_padded ? ", padded" : ""));
  } else if (sampler != nullptr) {
    all.emplace("batch_size", text(sampler->batch_size()));
  }
  if (options_.moving_average) {
    all.emplace(kAverageDecay, text(options_.moving_average->decay));
    all.emplace("moving_average.warm_up", options_.moving_average->warm_up ? "true" : "false");
  }
  if (!options_.checkpoints.metric.empty()) {
    all.emplace("checkpoints.metric", options_.checkpoints.metric);
    all.emplace("checkpoints.best",
                options_.checkpoints.best == CheckpointRetention::Best::highest ? "highest" : "lowest");
  }
  for (const auto& part : parts_) {
    if (part->is_sharded()) continue;
    const auto rates = part->learning_rates();
    for (std::size_t group = 0; group < rates.size(); ++group)
      all.emplace(text(part->name(), kRateOfGroup, group), text(rates[group]));
  }
  return all;
}

std::int64_t TrainingLoop::steps_of_epoch(const data::Sampler& sampler, std::int64_t number) const {
  return ceiling_of_ratio(integer(sampler.steps(0, static_cast<std::uint64_t>(number))), options_.accumulate);
}

// With batches by tokens epochs may have different numbers of steps.
std::int64_t TrainingLoop::steps_of_epochs(const data::Sampler& sampler, std::int64_t count) const {
  if (sampler.max_tokens() == 0) return count * steps_of_epoch(sampler, 0);
  std::int64_t steps = 0;
  for (std::int64_t number = 0; number < count; ++number) {
    if (options_.max_steps > 0 && steps > options_.max_steps) break;  // an epoch takes a look at all samples
    steps += steps_of_epoch(sampler, number);
  }
  return steps;
}

// And not by epochs, of which another number of ranks has others. As the run began, unless it is to end otherwise now.
bool TrainingLoop::ends_by_steps(const data::Sampler& sampler) const {
  if (options_.max_steps == 0 || options_.epochs == 0) return options_.epochs == 0;
  if (progress_->ends_by_steps >= 0 && context_.resume() == "auto") return progress_->ends_by_steps != 0;
  return steps_of_epochs(sampler, options_.epochs) > options_.max_steps;
}

void TrainingLoop::make_schedule(const data::Sampler& sampler, std::int64_t steps_per_epoch) {
  if (!options_.schedule) return;
  const auto steps = ends_by_steps(sampler) ? options_.max_steps : steps_of_epochs(sampler, options_.epochs);
  schedule_ = options_.schedule({.epochs = options_.epochs, .steps = steps, .steps_per_epoch = steps_per_epoch});
}

void TrainingLoop::follow_schedule(const data::Sampler& sampler) {
  const auto of_epoch = steps_of_epoch(sampler, 0);
  const auto former = std::exchange(progress_->steps_per_epoch, of_epoch);
  const bool differs = former != 0 && former != of_epoch;  // another number of ranks
  const bool by_steps = ends_by_steps(sampler);
  progress_->ends_by_steps = by_steps ? 1 : 0;
  if (by_steps) {
    // The schedule goes on at the same step, as that of the run which began.
    progress_->schedule_offset = 0;
    if (differs) progress_->steps_per_epoch = former;
  } else if (differs) {
    // It goes on at the same place in the data.
    auto steps_done = static_cast<double>(steps_of_epochs(sampler, epoch()));
    if (resumed_ && resumed_->epoch == static_cast<std::uint64_t>(epoch()))
      steps_done += static_cast<double>(resumed_->position) / static_cast<double>(resumed_->dataset_size) *
                    static_cast<double>(steps_of_epoch(sampler, epoch()));
    progress_->schedule_offset = std::llround(steps_done) - step();
  }
  if (former != 0) make_schedule(sampler, progress_->steps_per_epoch);  // of the run that continues
  if (!schedule_) return;
  for (const auto& part : parts_) {
    auto* const optimizer = part->plain_optimizer();
    if (optimizer == nullptr) continue;
    std::vector<double> bases;
    for (const auto& group : optimizer->param_groups()) bases.push_back(group.options().get_lr());
    rates_.emplace_back(*optimizer, std::move(bases), schedule_);
  }
}

// ---- An epoch

void TrainingLoop::train_epoch(TrainerSteps& steps) {
  begin_epoch(steps);
  if (progress_->must_evaluate) {
    evaluate(steps);
    if (is_best()) save(steps);
  }
  while (!now_.has_ended() && !is_over()) {
    make_step(steps);
    follow_step(steps);
  }
  if (now_.has_ended()) {
    end_epoch(steps);
  } else {
    record_interval();
    const auto means = progress_->means.of_epoch();
    progress_->state.metrics.insert(means.begin(), means.end());  // of what the last steps, if skipped, do not have
    if (evaluated_step_ != step()) evaluate(steps);
    save(steps);
  }
  steps.end_epoch();
}

void TrainingLoop::require_batches(const data::Sampler& sampler) const {
  if (sampler.remainder() == data::Remainder::uneven) {
    throw UsageError(
        "A trainer needs equally many batches on all ranks, which Remainder::uneven does not give. Use "
        "Remainder::exact.");
  }
  if (sampler.steps(0, 0) == 0) throw UsageError("fit() was given a loader without batches. Use more data.");
}

// As where Context::shard() was forgotten. Each rank may have data of its own.
void TrainingLoop::warn_of_repeated_data(const data::Sampler& sampler) const {
  const auto first = sampler.samples(0);
  std::uint64_t together = 0;
  for (const auto& numbers : communicator().all_gather_bytes(to_bytes(std::vector{static_cast<double>(first.of_rank)})))
    together += static_cast<std::uint64_t>(numbers_of(numbers).front());
  if (together == first.of_all || context_.rank() != 0) return;
  log_warning(text("The first step has ", first.of_all, " samples for the loader, but the ranks read ", together,
                   ": if all of them have the same data, they train on the same samples. Pass context.shard() to the "
                   "loader."));
}

// The ranks take part in a step in equal numbers of rounds, even one that has no samples in it; see TrainerPart. Where
// none may lack samples, a last step with too few must not end the run later. Batches by tokens end differently in each
// epoch, others where an epoch is continued by another number of ranks.
void TrainingLoop::require_last_steps(const data::Sampler& sampler) const {
  if (joins() || is_over() || sampler.remainder() != data::Remainder::exact) return;
  auto steps = state().step;
  for (auto number = state().epoch; options_.epochs == 0 || number < options_.epochs; ++number) {
    const auto of_epoch = static_cast<std::uint64_t>(number);
    const auto from = first_sample(of_epoch);
    const auto batches = sampler.steps(from, of_epoch);
    steps += ceiling_of_ratio(integer(batches), options_.accumulate);
    if (options_.max_steps > 0 && steps > options_.max_steps) return;
    if (batches > 0) {
      const auto last = sampler.samples(batches - 1, from, of_epoch).of_all;
      if (last < static_cast<std::uint64_t>(context_.world_size())) {
        throw UsageError(text("The last batch of epoch ", number + 1, " has ", last, " samples for ",
                              context_.world_size(), " ranks. A trainer of several parts, or with a SyncBatchNorm, ",
                              "needs some on each: use Remainder::pad or Remainder::drop."));
      }
    }
    if (sampler.max_tokens() == 0 && from == 0) return;
  }
}

// Where an epoch begins: a resumed one where its checkpoint was written.
std::uint64_t TrainingLoop::first_sample(std::uint64_t epoch) const {
  return resumed_ && resumed_->epoch == epoch ? resumed_->position : 0;
}

std::vector<SyncBatchNormImpl*> TrainingLoop::batch_norms() const {
  std::vector<SyncBatchNormImpl*> found;
  for (const auto& part : parts_) {
    // modules() with the part itself would need a shared_ptr to it.
    if (auto* const norm = dynamic_cast<SyncBatchNormImpl*>(&part->module())) found.push_back(norm);
    for (const auto& module : part->module().modules(/*include_self=*/false)) {
      if (auto* const norm = dynamic_cast<SyncBatchNormImpl*>(module.get())) found.push_back(norm);
    }
  }
  return found;
}

// Whether a rank without samples in a step joins the others' round.
bool TrainingLoop::joins() const {
  return parts_.size() == 1 && batch_norms().empty();
}

void TrainingLoop::begin_epoch(TrainerSteps& steps) {
  const auto number = static_cast<std::uint64_t>(epoch());
  now_ = {};
  if (resumed_) steps.resume(*resumed_);  // also for an epoch that has ended: its bad samples still count
  if (resumed_ && resumed_->epoch == number) {
    now_.from = resumed_->position;
  } else {
    steps.begin_epoch(number);
  }
  resumed_.reset();
  now_.batches = integer(steps.sampler().steps(now_.from, number));
  auto left = ceiling_of_ratio(now_.batches, options_.accumulate);
  if (options_.max_steps > 0) left = std::min(left, options_.max_steps - step());
  context_.progress().begin_epoch({.number = static_cast<int>(epoch() + 1),
                                   .count = static_cast<int>(options_.epochs),
                                   .steps = progress_->step_in_epoch + left,
                                   .first_step = progress_->step_in_epoch});
}

void TrainingLoop::make_step(TrainerSteps& steps) {
  const Stopwatch stopwatch;
  const auto plan = plan_step(steps.sampler());
  prepare_parts();
  const bool weighs_parts = !plan.is_even && parts_.size() > 1;
  const auto weighed = weighs_parts ? batch_norms() : std::vector<SyncBatchNormImpl*>{};
  for (std::int64_t index = 0; index < plan.batches; ++index, ++now_.batch) {
    const auto samples = integer(samples_of(steps.sampler(), now_.batch).of_rank);
    {
      const TraceSpan span{context_.trace(), "data", "wait for a batch"};
      const Stopwatch waiting;
      steps.next_batch();
      interval_.seconds_waiting_for_data += waiting.seconds();
    }
    if (samples == 0) continue;
    run_batch(steps,
              {.is_alone = plan.batches == 1,
               .divisor = plan.batches == 1 ? 1.0 : static_cast<double>(plan.own) / static_cast<double>(samples),
               .is_last = index == plan.last,
               .uneven = plan.is_even ? -1 : plan.own,
               .batch_norms = weighed,
               .trace = context_.trace()},
              samples);
  }
  if (plan.last < 0) parts_.front()->step_without_samples();
  require_ended_rounds();
  add_step_values();
  ++step();
  ++progress_->step_in_epoch;
  progress_->state.samples += plan.all;
  ++interval_.steps;
  interval_.samples += plan.all;
  interval_.seconds += stopwatch.seconds();
}

data::Sampler::StepSamples TrainingLoop::samples_of(const data::Sampler& sampler, std::int64_t batch) const {
  return sampler.samples(static_cast<std::uint64_t>(batch), now_.from,
                         static_cast<std::uint64_t>(progress_->state.epoch));
}

TrainingLoop::Plan TrainingLoop::plan_step(const data::Sampler& sampler) const {
  Plan plan{.batches = std::min(options_.accumulate, now_.batches - now_.batch)};
  for (std::int64_t index = 0; index < plan.batches; ++index) {
    const auto samples = samples_of(sampler, now_.batch + index);
    plan.own += integer(samples.of_rank);
    plan.all += integer(samples.of_all);
    if (samples.of_rank > 0) plan.last = index;
    if (!samples.are_even) plan.is_even = false;
  }
  return plan;
}

void TrainingLoop::prepare_parts() {
  const auto schedule_step = step() + progress_->schedule_offset;
  for (auto& rate : rates_) rate.set(schedule_step);
  const bool must_stop = checkpoint_ && context_.stop_request().is_requested();
  for (const auto& part : parts_) {
    part->begin_step();
    part->settle();
    if (schedule_) part->set_rate_factor(schedule_(schedule_step));
    if (must_stop) part->synchronizer().request_stop();
  }
}

void TrainingLoop::run_batch(TrainerSteps& steps, const TrainerPart::Batch& batch, std::int64_t samples) {
  for (const auto& part : parts_) part->begin_batch(batch);
  const auto result = [&] {
    std::optional<Autocast> autocast;
    begin_autocast(autocast);
    const TraceSpan span{batch.trace, "compute", "forward"};
    return steps.run();
  }();
  const bool was_updated = std::ranges::count_if(parts_, [](const auto& part) { return part->end_batch(); }) > 0;
  if (was_updated == result.loss.defined()) {
    throw UsageError(was_updated
                         ? "A trainer's step has called TrainerPart::update() and returned a loss, too. Return "
                           "StepResult::updated()."
                         : "A trainer's step has returned no loss, and called TrainerPart::update() of no part. "
                           "Return the loss.");
  }
  // Now: the update changes a value that is a parameter, and the next batch one in memory that the step uses again.
  const auto add_value = [&](const std::string& name, const at::Tensor& value) {
    step_values_.push_back({name, value.defined() ? value.detach().clone() : value, static_cast<double>(samples)});
  };
  if (result.loss.defined()) add_value("loss", result.loss);
  for (const auto& [name, value] : result.metrics) add_value(name, value);
  if (result.loss.defined()) TrainerPart::update_together(result.loss, parts(), batch);
}

void TrainingLoop::require_ended_rounds() const {
  for (const auto& part : parts_) {
    if (!part->is_in_round()) continue;
    throw UsageError(
        text("TrainerPart::update() of '", part->name(),
             "' was not called for the last batch of a step, but for one before it. Call it for each batch, "
             "or set TrainerOptions::accumulate to 1."));
  }
}

// The loss of a step that NonFinite::skipped has skipped is not one of the training.
void TrainingLoop::add_step_values() {
  const bool is_skipped = std::ranges::any_of(parts_, [](const auto& part) { return part->has_skipped(); });
  for (const auto& [name, value, samples] : step_values_) progress_->means.add(name, value, is_skipped ? 0 : samples);
  step_values_.clear();
}

void TrainingLoop::settle_parts() {
  for (const auto& part : parts_) part->settle();
}

void TrainingLoop::begin_autocast(std::optional<Autocast>& autocast) const {
  if (options_.precision == Precision::float32) return;
  autocast.emplace(context_.device(),
                   AutocastOptions{.type = options_.precision == Precision::float16 ? at::kHalf : at::kBFloat16});
}

void TrainingLoop::follow_step(TrainerSteps& steps) {
  if (is_due(step(), options_.log_every_steps)) record_interval();
  records_->show_step(progress_->step_in_epoch);
  if (!after_step_.empty()) settle_parts();
  for (const auto& callback : after_step_) callback(state());
  if (is_over()) return;    // an evaluation and a checkpoint follow, and the end
  if (!now_.has_ended()) {  // otherwise end_epoch() follows
    if (is_due(step(), options_.evaluate_every_steps)) evaluate(steps);
    if (is_due(step(), options_.checkpoints.every_steps) || is_best()) save(steps);
  }
  if (std::ranges::any_of(parts_, [](const auto& part) { return part->synchronizer().stop_requested(); })) stop(steps);
}

void TrainingLoop::end_epoch(TrainerSteps& steps) {
  record_interval();
  const bool is_last = epoch() + 1 == options_.epochs || is_over();
  const bool must_evaluate =
      is_last || is_due(epoch() + 1, options_.evaluate_every_epochs) || is_due(step(), options_.evaluate_every_steps);
  if (must_evaluate && evaluated_step_ != step()) evaluate(steps);
  const auto means = progress_->means.take_epoch();
  records_->record("epoch", step(), epoch(), means);
  if (!means.empty()) progress_->state.metrics = means;
  ++epoch();
  progress_->step_in_epoch = 0;
  records_->show_end_of_epoch(evaluated_step_ == step() ? with_evaluation(means) : means);
  if (!after_epoch_.empty()) settle_parts();
  for (const auto& callback : after_epoch_) callback(state());
  if (is_over() && evaluated_step_ != step()) evaluate(steps);  // a callback has ended the training
  const auto& policy = options_.checkpoints;
  if (is_over() || is_best() || is_due(epoch(), policy.every_epochs) || is_due(step(), policy.every_steps)) save(steps);
}

}  // namespace libtrain::detail
