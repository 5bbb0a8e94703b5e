#include <libtrain/sync/detail/gradient_rounds.hpp>

#include <algorithm>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/detail/finite_gradient.hpp>
#include <libtrain/sync/model_signature.hpp>
#include <libtrain/sync/replica_check.hpp>
#include <libtrain/sync/wire/detail/plain.hpp>

namespace libtrain::detail {

GradientRounds::GradientRounds(torch::nn::Module& module, Communicator& communicator, SynchronizerOptions options)
    : module_(module),
      communicator_(communicator),
      options_(std::move(options)),
      format_(format_or_plain(options_.wire_format, communicator.world_size())),
      parameters_(module),
      planner_(parameters_, options_),
      status_(parameters_.size(), communicator),
      buffers_(module.buffers(), communicator),
      weights_(communicator) {
  for (const auto& layer : module.modules(false)) {
    if (auto batch_norm = std::dynamic_pointer_cast<SyncBatchNormImpl>(layer)) batch_norms_.push_back(batch_norm);
  }
  if (format_ && !communicator.supports(at::kCPU)) {
    throw UsageError(text("This version synchronises gradients in host memory, which the backend ",
                          communicator.backend(), " does not take: choose --dist-backend auto or gloo."));
  }
  if (format_) buckets_.emplace(*format_, communicator, options_.trace);
  parameters_.check_trainable();
  planner_.check_given();
  use_plan(planner_.plan());
  end();
}

void GradientRounds::hook() {
  // A graph that outlives the synchronizer may still call the hooks.
  const auto weak = weak_from_this();
  parameters_.hook({.before =
                        [weak](std::size_t index) {
                          if (const auto rounds = weak.lock()) rounds->expect_gradient(index);
                        },
                    .after =
                        [weak](std::size_t index, const at::Tensor& incoming) {
                          if (const auto rounds = weak.lock()) rounds->mark_gradient_ready(index, incoming);
                        }});
}

void GradientRounds::close() {
  const std::lock_guard lock(mutex_);
  round_.phase = Phase::closed;
  parameters_.unhook();
  buckets_.reset();
}

// ---- A gradient comes, on a thread that runs backward().

// Before the first gradient and not after it: a new plan moves gradients, to some of which other threads may be adding.
void GradientRounds::open() {
  round_.phase = Phase::accumulating;
  use_next_plan();
  if (const auto problem = parameters_.problem_of_memory(); !problem.empty()) fail(problem);
  if (parameters_.trainable_set_changed()) status_.set_trainable_set_changed();
  parameters_.remember_values(rounds_);
}

// Autograd is about to add to a gradient, which may be on its way already.
void GradientRounds::expect_gradient(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (round_.phase == Phase::closed) return;
  if (round_.phase == Phase::idle) open();
  if (buckets_) buckets_->begin_backward();
  const auto& parameter = parameters_[index];
  if (!parameter.place) return;
  if (parameter.was_stepped()) fail_stepped(parameter);
  if (no_sync_guards_ == 0 && parameter.has_arrived() && options_.overlap == Overlap::backward) {
    fail(text("Parameter '", parameter.name,
              "' received a second gradient before wait(): call wait() after every backward(), run all but the last "
              "under no_sync(), or choose Overlap::none, under which backward() may reach a parameter many times."));
  }
}

void GradientRounds::mark_gradient_ready(std::size_t index, const at::Tensor& incoming) {
  const std::lock_guard lock(mutex_);
  auto& parameter = parameters_[index];
  // Idle: another thread's hook has ended the round with an error.
  if (round_.phase == Phase::closed || round_.phase == Phase::idle || !parameter.place) return;
  if (no_sync_guards_ > 0) {
    adopt_or_keep(parameter, incoming);
    parameter.gradient = ModuleParameter::Gradient::accumulated;
    return;
  }
  round_.phase = Phase::filling;
  if (parameter.use != ModuleParameter::Use::expected) {
    fail(text("Parameter '", parameter.name,
              "' received a gradient although find_unused() or declare_unused() said that it would not: give "
              "find_unused() the tensor that backward() starts from."));
  }
  adopt_or_keep(parameter, incoming);
  parameter.remember_gradient();
  if (parameter.has_arrived()) return;
  if (round_.arrivals.empty()) round_.since_first_gradient.restart();
  parameter.gradient = ModuleParameter::Gradient::arrived;
  parameter.ready_s = round_.since_first_gradient.seconds();
  round_.arrivals.push_back(index);
  if (options_.overlap == Overlap::none) return;
  --missing_[parameter.place->bucket];
  while (started_ < plan_.size() && missing_[started_] == 0) start_next_bucket();
}

// backward() adds to a gradient that is defined, in place; otherwise it leaves a tensor of its own making, which
// becomes the place of a large gradient, and is copied to that of a small one. A function may also have passed on
// nothing.
void GradientRounds::adopt_or_keep(ModuleParameter& parameter, const at::Tensor& incoming) {
  auto& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) return;
  const auto [index, member] = *parameter.place;
  auto* const bucket = buckets_ ? &(*buckets_)[index] : nullptr;
  if (bucket != nullptr && bucket->holds(member, gradient)) return;
  if (const auto problem = parameter.problem_of_gradient(); !problem.empty()) fail(problem);
  if (bucket == nullptr || (!parameter.has_arrived() && bucket->adopt(gradient, incoming))) return;
  const TraceSpan span{options_.trace, "compute", "copy gradient"};
  bucket->keep(member, gradient);
}

void GradientRounds::start_next_bucket() {
  for (const auto index : plan_[started_].members) {
    auto& parameter = parameters_[index];
    if (!parameter.has_arrived() || !parameter.has_gradient()) keep_in_place(parameter);
    note(index);
  }
  if (buckets_) buckets_->start(started_, round_.weight.weight);
  ++started_;
}

const at::Tensor& GradientRounds::place_of(const ModuleParameter& parameter) {
  return (*buckets_)[parameter.place->bucket].place(parameter.place->member);
}

// Of a parameter that the round's backward() has not reached: what was accumulated, or zero. A round that has failed
// carries nothing but the news.
void GradientRounds::keep_in_place(ModuleParameter& parameter) {
  if (parameter.tensor.grad().defined() && round_.report.failure.empty()) {
    adopt_or_keep(parameter, {});
  } else if (buckets_) {
    place_of(parameter).zero_();
  }
}

// What the status says of a parameter. Before the reduction, which spreads NaN over all ranks.
void GradientRounds::note(std::size_t index) {
  auto& parameter = parameters_[index];
  auto& gradient = parameter.tensor.mutable_grad();
  const bool has_gradient = parameter.place ? parameter.has_gradient() : gradient.defined();
  if (!has_gradient || round_.is_joining) {
    if (!is_expected(parameter)) return;
    status_.set_failed();
    round_.report.missing.push_back(parameter.name);
    return;
  }
  status_.set_used(index);
  if (round_.values != Round::Values::some) {
    round_.values = is_zero(gradient) ? Round::Values::zeros : Round::Values::some;
  }
  if (round_.weight.weight == 0) {
    if (buckets_) return;  // which are zeroed
    gradient.zero_();      // what no rank has samples for must not be stepped
    parameter.remember_gradient();
  } else if (options_.non_finite != NonFinite::unchecked && !is_finite(gradient)) {
    status_.set_non_finite();
    round_.report.non_finite.push_back(parameter.name);
  }
}

// ---- The round ends, in wait().

bool GradientRounds::wait() {
  const std::lock_guard lock(mutex_);
  if (round_.phase == Phase::idle) open();
  if (no_sync_guards_ > 0) {
    fail("wait() was called while a no_sync() guard exists: destroy it before the round's last backward().");
  }
  check_passes();
  return finish();
}

void GradientRounds::check_passes() {
  if (const auto* stepped = parameters_.first_stepped()) {
    fail(text("Parameter '", stepped->name,
              "' was changed between backward() and wait(), while its gradient was not averaged yet: call wait() "
              "before the optimizer's step()."));
  }
  for (const auto& parameter : parameters_) {
    if (!parameter.has_arrived() || !parameter.gradient_was_touched()) continue;
    fail(text("The gradient of parameter '", parameter.name,
              "' was changed between backward() and wait(), while it was being averaged: call wait() first, then clip, "
              "step(), and zero_grad()."));
  }
  if (is_under_way() || status_.trainable_set_changed()) return;
  if (parameters_.have_accumulated()) {
    fail("Every backward() before wait() ran under no_sync(): run the round's last one after the guard is destroyed.");
  }
  // Where parameters may be unused, a rank may use none.
  if (options_.unused == UnusedParameters::refused) fail("wait() was called without a backward() before it.");
}

bool GradientRounds::finish() {
  round_.phase = Phase::finishing;
  has_skipped_ = false;
  while (started_ < plan_.size()) start_next_bucket();
  report_unplanned();
  wait_for_buckets();
  try {
    ++rounds_;
    agree_on_outcome();
    require_equal_replicas();
    const bool has_new_plan = follow_trainable_set();
    has_skipped_ = look_for_non_finite();
    if (!has_skipped_) settle_gradients();
    warn_of_nan();
    warn_of_zeros();
    buffers_.exchange(options_.buffers, round_.weight);
    if (!has_new_plan && buckets_) {
      auto better = planner_.replan_by_arrival(round_.arrivals, communicator_);
      if (better && *better != plan_) next_plan_ = std::move(better);
    }
  } catch (const UsageError&) {
    end();
    throw;
  }
  end();
  return !has_skipped_;
}

// Gradients of parameters that were frozen when the buckets were planned.
void GradientRounds::report_unplanned() {
  if (!parameters_.trainable_set_changed() || !round_.report.failure.empty()) return;
  status_.set_trainable_set_changed();
  try {
    parameters_.check_trainable();
  } catch (const UsageError& problem) {
    round_.report.failure = problem.what();
    return;
  }
  for (const auto index : parameters_.trainable()) {
    if (!parameters_[index].place) note(index);
  }
}

void GradientRounds::wait_for_buckets() {
  const TraceSpan span{options_.trace, "compute", "wait for gradients"};
  const Stopwatch stopwatch;
  if (!round_.report.failure.empty()) status_.set_failed();
  if (options_.replicas == Replicas::compared) status_.set_replica(parameters_.digest_of_probes());
  status_.exchange();
  if (buckets_) buckets_->wait();
  status_.wait();
  seconds_waiting_ += stopwatch.seconds();
}

void GradientRounds::agree_on_outcome() {
  if (!status_.has_failed()) return;
  const auto reports = gather_reports(round_.report, communicator_);
  auto failures = describe_failures(reports);
  const auto missing_text = describe_missing(reports, parameters_.trainable().size());
  if (!failures.empty() && !missing_text.empty()) failures += " ";
  throw UsageError(failures + missing_text, ErrorScope::all_ranks);
}

// The status is the same on all ranks, and so is what they do here.
void GradientRounds::require_equal_replicas() {
  if (!status_.replicas_differ()) return;
  communicator_.barrier();  // parameters that a ShardedOptimizer still gathers come first
  check_trained_replicas(module_, communicator_, text(" before round ", rounds_),
                         " Give all ranks the same number of --threads, on which the rounding of sums depends. Ranks "
                         "that differ on purpose, or whose processors round differently, need Replicas::unchecked.");
}

bool GradientRounds::follow_trainable_set() {
  if (!status_.trainable_set_changed()) return false;
  require_same_model(module_, communicator_, Layouts::compared);
  parameters_.check_trainable();
  average_unplanned();
  hook();
  next_plan_ = planner_.plan();
  planner_.forget_arrivals();
  return true;
}

// In buckets of their own, this once.
void GradientRounds::average_unplanned() {
  auto fresh = parameters_.trainable();
  std::erase_if(fresh, [this](std::size_t index) { return parameters_[index].place.has_value(); });
  if (fresh.empty() || !buckets_) return;
  const auto plan = planner_.plan(fresh);
  PlainWireFormat format;
  GradientBuckets buckets{format, communicator_, options_.trace};
  buckets.make(plan, parameters_, BucketLimits::kNever, owner_);
  for (std::size_t bucket = 0; bucket < plan.size(); ++bucket) {
    for (std::size_t member = 0; member < plan[bucket].members.size(); ++member) {
      const auto index = plan[bucket].members[member];
      auto& gradient = parameters_[index].tensor.mutable_grad();
      if (!status_.is_used(index)) continue;
      if (gradient.defined()) buckets[bucket].keep(member, gradient);
      gradient = buckets[bucket].place(member);
    }
    buckets.start(bucket, round_.weight.weight);
  }
  buckets.wait();
}

bool GradientRounds::look_for_non_finite() {
  if (options_.non_finite == NonFinite::unchecked) return false;
  std::string found;
  if (status_.is_non_finite()) {
    found = describe_non_finite(gather_reports(round_.report, communicator_), rounds_);
  } else if (const auto* overflowed = first_overflowed()) {
    found = text("The average of the gradients of '", overflowed->name, "' overflowed in round ", rounds_,
                 ", in the wire format ", format_->signature(), ".");
  }
  if (found.empty()) return false;
  if (options_.non_finite == NonFinite::fatal) {
    throw UsageError(found + " Lower the learning rate, clip gradients, or choose NonFinite::skipped.",
                     ErrorScope::all_ranks);
  }
  if (communicator_.rank() == 0) log_warning(found + " All ranks skip the step.");
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  return true;
}

// Finite gradients may become infinite on the way, by the format or by a weight. All ranks hold the same bits, and so
// find the same.
const ModuleParameter* GradientRounds::first_overflowed() {
  for (std::size_t index = 0; buckets_ && index < parameters_.size(); ++index) {
    const auto& parameter = parameters_[index];
    if (!format_->may_overflow() && parameter.tensor.element_size() != 2) continue;
    if (parameter.place) {
      if (!is_finite(place_of(parameter))) return &parameter;
    } else if (status_.is_used(index) && !is_finite(parameter.tensor.grad())) {  // unfrozen in this round
      return &parameter;
    }
  }
  return nullptr;
}

// A rank that has not used a parameter gets the others' average; where no rank has, the gradient stays as it was.
void GradientRounds::settle_gradients() {
  for (std::size_t index = 0; buckets_ && index < parameters_.size(); ++index) {
    auto& parameter = parameters_[index];
    if (parameter.place && status_.is_used(index)) parameter.tensor.mutable_grad() = place_of(parameter);
  }
}

// NaN seldom comes alone: one element of each gradient is enough to see it before weights are saved and time is lost.
void GradientRounds::warn_of_nan() {
  if (options_.non_finite != NonFinite::unchecked || has_warned_of_nan_ || communicator_.rank() != 0) return;
  for (const auto& parameter : parameters_) {
    const auto& gradient = parameter.tensor.grad();
    if (!parameter.place || !gradient.defined() || !begins_with_nan(gradient)) continue;
    has_warned_of_nan_ = true;
    log_warning(text("The gradient of parameter '", parameter.name, "' holds NaN after round ", rounds_,
                     ": weights that are stepped with it hold NaN as well, on all ranks. NonFinite::fatal names the "
                     "rank that it comes from, NonFinite::skipped leaves such rounds out; a LossScaler does so, too."));
    return;
  }
}

// An empty batch has a loss of NaN and a gradient of zero, which makes the average too small.
void GradientRounds::warn_of_zeros() {
  if (round_.values != Round::Values::zeros || has_warned_of_zeros_ || round_.weight.total > 0) return;
  if (!buckets_ || std::all_of(parameters_.begin(), parameters_.end(), [this](const ModuleParameter& parameter) {
        return !parameter.place || is_zero(place_of(parameter));
      })) {
    return;
  }
  has_warned_of_zeros_ = true;
  log_warning(text("Every gradient of rank ", communicator_.rank(), " was zero in round ", rounds_,
                   ", as after an empty batch, and the average over all ranks counts it like the others': call "
                   "set_samples(batch.size()) before backward() where batches may differ in size."));
}

void GradientRounds::end() {
  weigh({});
  round_ = {};
  forget_gradients();
}

// But not how many samples the coming round has.
void GradientRounds::forget_gradients() {
  round_.phase = Phase::idle;
  started_ = 0;
  status_.clear();
  if (buckets_) buckets_->release();
  parameters_.forget_gradients();
  count_missing();
}

// ---- What else a user may ask for.

void GradientRounds::zero_grad() {
  const std::lock_guard lock(mutex_);
  if (is_under_way()) {
    fail("zero_grad() was called between backward() and wait(): call wait() first, then step, then zero_grad().");
  }
  if (const auto* stepped = round_.phase == Phase::idle ? nullptr : parameters_.first_stepped()) fail_stepped(*stepped);
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  forget_gradients();
  use_next_plan();
}

void GradientRounds::enter_no_sync() {
  const std::lock_guard lock(mutex_);
  if (is_under_way()) {
    fail(
        "no_sync() was called between backward() and wait(): call wait() first, or take the guard before the round's "
        "first backward().");
  }
  ++no_sync_guards_;
}

void GradientRounds::leave_no_sync() {
  const std::lock_guard lock(mutex_);
  --no_sync_guards_;
  if (buckets_) buckets_->end_backward();  // what comes next is a forward
}

std::int64_t GradientRounds::set_samples(std::int64_t samples) {
  const std::lock_guard lock(mutex_);
  exchange_samples(samples,
                   samples < 0 ? text("set_samples() was given ", samples, ": a rank has 0 samples or more.") : "");
  return round_.weight.total;
}

// All ranks throw where this one has a problem.
void GradientRounds::exchange_samples(std::int64_t samples, std::string problem) {
  if (is_under_way()) {
    fail("set_samples() was called between backward() and wait(): call it before the round's backward().");
  }
  if (problem.empty() && parameters_.have_accumulated() && !batch_norms_.empty()) {
    problem =
        "set_samples() was called after a backward() under no_sync(), whose SyncBatchNorm has used other weights: call "
        "it before the round's first backward().";
  }
  const auto weight = weights_.exchange(problem.empty() ? samples : SampleWeights::kRefused);
  if (weight.is_refused) {
    throw UsageError(describe_failures(gather_reports({.failure = problem}, communicator_)), ErrorScope::all_ranks);
  }
  weigh(weight);
}

bool GradientRounds::join() {
  const std::lock_guard lock(mutex_);
  exchange_samples(SampleWeights::kJoined, "");
  const bool is_over = round_.weight.all_joined;
  if (is_over) weigh({});
  if (!is_over && round_.phase == Phase::idle) open();
  if (parameters_.have_accumulated()) {
    const std::string lost =
        "join() was called with gradients accumulated under no_sync(), which would be lost: end the round with one "
        "more backward() and wait(), or zero_grad().";
    if (is_over) throw UsageError(lost);
    fail(lost);
  }
  if (is_over) return false;
  // Those of the round before are done with; what no rank uses in this one must not be stepped here alone.
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  round_.is_joining = true;
  finish();
  return true;
}

void GradientRounds::find_unused(const std::vector<at::Tensor>& outputs) {
  const std::lock_guard lock(mutex_);
  require_unused_allowed("find_unused()");
  if (is_under_way()) fail("find_unused() was called after a backward() of its round: call it before.");
  if (no_sync_guards_ > 0) return;
  if (round_.phase == Phase::idle) open();
  parameters_.find_unused(outputs);
  count_missing();
}

void GradientRounds::declare_unused(const std::vector<std::string>& names) {
  const std::lock_guard lock(mutex_);
  require_unused_allowed("declare_unused()");
  if (round_.phase != Phase::idle) {
    throw UsageError("declare_unused() was called inside a round: call it between wait() and backward().");
  }
  parameters_.declare_unused(names);
  count_missing();
}

void GradientRounds::broadcast_buffers() {
  const std::lock_guard lock(mutex_);
  if (is_under_way()) fail("broadcast_buffers() was called between backward() and wait(): call wait() first.");
  buffers_.broadcast(0);
}

BucketLimits GradientRounds::tune() {
  const std::lock_guard lock(mutex_);
  if (rounds_ == 0 || round_.phase != Phase::idle) {
    throw UsageError("tune() needs to know when gradients become ready: call it between two rounds, after the first.");
  }
  next_plan_ = planner_.tune(communicator_);
  hook();  // parameters may have been unfrozen
  return planner_.limits();
}

SynchronizationStatistics GradientRounds::statistics() const {
  const std::lock_guard lock(mutex_);
  SynchronizationStatistics statistics{.rounds = rounds_, .seconds_waiting = seconds_waiting_};
  if (buckets_) buckets_->add_to(statistics);
  for (const auto& bucket : plan_) {
    if (!buckets_) statistics.buckets.push_back({.bytes = bucket.bytes});
  }
  return statistics;
}

// ---- The plan.

void GradientRounds::use_plan(const std::vector<Bucket>& plan) {
  plan_ = plan;
  parameters_.place(plan_);
  if (!buckets_) return;
  buckets_->make(plan_, parameters_, planner_.limits().alone_bytes, owner_);
  for (auto& parameter : parameters_) {
    if (parameter.place) adopt_or_keep(parameter, {});
  }
}

void GradientRounds::use_next_plan() {
  if (!next_plan_) return;
  use_plan(*std::exchange(next_plan_, std::nullopt));
  hook();  // parameters may have been unfrozen since the plan was made
  count_missing();
}

void GradientRounds::set_owner(const std::string& owner) {
  owner_ = owner;
  if (buckets_) buckets_->set_owner(owner);
  status_.set_owner(owner);
}

std::vector<std::string> GradientRounds::describe() const {
  auto lines = planner_.describe(plan_);
  lines.push_back(text("wire format ", format_ ? format_->signature() : "none", ", policies ",
                       static_cast<int>(options_.unused), " ", static_cast<int>(options_.non_finite), " ",
                       static_cast<int>(options_.buffers), " ", static_cast<int>(options_.replicas)));
  return lines;
}

void GradientRounds::count_missing() {
  missing_.clear();
  for (const auto& bucket : plan_) {
    missing_.push_back(
        static_cast<std::size_t>(std::count_if(bucket.members.begin(), bucket.members.end(), [this](std::size_t index) {
          return parameters_[index].use == ModuleParameter::Use::expected;
        })));
  }
}

// ---- Mistakes.

bool GradientRounds::is_expected(const ModuleParameter& parameter) const {
  return options_.unused == UnusedParameters::refused && parameter.tensor.requires_grad() && !round_.is_joining &&
         round_.report.failure.empty();
}

void GradientRounds::weigh(const SampleWeight& weight) {
  round_.weight = weight;
  for (const auto& batch_norm : batch_norms_) batch_norm->set_gradient_weight(weight.weight);
}

void GradientRounds::require_unused_allowed(const char* caller) const {
  if (options_.unused == UnusedParameters::allowed) return;
  throw UsageError(text(caller,
                        " was called, but unused parameters are refused: make the synchronizer with "
                        "{.unused = UnusedParameters::allowed}."));
}

void GradientRounds::fail(const std::string& failure) {
  round_.report.failure = failure;
  try {
    finish();
  } catch (const CommunicationError& error) {
    throw UsageError(text(failure, " The other ranks were not told: ", error.what()));
  }
  throw UsageError(failure);  // not reached: the outcome of a round that has failed is an error on all ranks
}

void GradientRounds::fail_stepped(const ModuleParameter& parameter) {
  fail(text("Parameter '", parameter.name,
            "' was stepped with gradients that were not averaged: call wait() between backward() and the optimizer's "
            "step()."));
}

}  // namespace libtrain::detail
