#include <libtrain/sync/detail/gradient_rounds.hpp>

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/engine.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/model_signature.hpp>
#include <libtrain/sync/replica_check.hpp>
#include <libtrain/sync/wire/detail/plain.hpp>

namespace libtrain::detail {

namespace {

// A group of one that sends nothing takes the module where it is.
at::Device device_of(const torch::nn::Module& module, const WireFormat* format, const Communicator& communicator) {
  if (format != nullptr) return communicator.device();
  const auto parameters = module.parameters();
  return parameters.empty() ? communicator.device() : parameters.front().device();
}

}  // namespace

GradientRounds::GradientRounds(torch::nn::Module& module, Communicator& communicator, SynchronizerOptions options)
    : module_(module),
      communicator_(communicator),
      options_(std::move(options)),
      format_(format_or_plain(options_.wire_format, communicator)),
      use_of_format_(format_.get()),
      device_(device_of(module, format_.get(), communicator)),
      parameters_(module),
      checks_(device_.is_cpu() ? host_value_checks(parameters_, options_) : device_value_checks(parameters_, options_)),
      planner_(parameters_, options_),
      status_(parameters_.size(), communicator),
      buffers_(module.buffers(), communicator),
      weights_(communicator),
      waiting_(device_) {
  // modules() with the module itself would need a shared_ptr to it.
  if (auto* const root = dynamic_cast<SyncBatchNormImpl*>(&module)) {
    batch_norms_.emplace_back(std::shared_ptr<void>{}, root);
  }
  for (const auto& layer : module.modules(false)) {
    if (auto batch_norm = std::dynamic_pointer_cast<SyncBatchNormImpl>(layer)) batch_norms_.push_back(batch_norm);
  }
  if (format_) buckets_.emplace(*format_, communicator, options_.trace);
  parameters_.check_trainable(device_);
  planner_.check_given();
  use_plan(planner_.plan());
  end_round();
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
  error_ = nullptr;
  parameters_.unhook();
  buckets_.reset();
}

void GradientRounds::set_owner(const std::string& owner) {
  owner_ = owner;
  if (buckets_) buckets_->set_owner(owner);
  status_.set_owner(owner);
}

// ---- A gradient arrives, on a thread that runs backward().

// Before the first gradient of a round: a new plan moves gradients, and later other threads may be adding to them.
void GradientRounds::open() {
  round_.is_recorded = communicator_.is_recording();
  if (round_.is_recorded) require_recordable();
  round_.phase = Phase::accumulating;
  use_next_plan();
  if (const auto problem = parameters_.problem_of_memory(); !problem.empty()) fail(problem);
  if (parameters_.trainable_set_changed()) status_.set_trainable_set_changed();
  if (!round_.is_recorded) checks_->open(rounds_);
}

// Replays repeat what the device does in this round, and nothing that the host decides. All ranks are in the same state
// here, so all of them throw.
void GradientRounds::require_recordable() const {
  std::string problem;
  if (options_.non_finite != NonFinite::unchecked) {
    problem =
        "NonFinite::skipped and NonFinite::fatal wait for the device in every round. Set NonFinite::unchecked, and let "
        "a LossScaler skip steps.";
  } else if (format_ && !format_->is_recordable()) {
    problem = text("the wire format ", format_->name(),
                   " decides on the host what a round sends. Use a format that is recordable, such as none.");
  } else if (round_.weight.total > 0) {
    problem = "set_samples() gives weights that may differ in each round. Give all ranks equally large batches.";
  } else if (rounds_ == 0 || next_plan_) {
    problem = "buckets are planned again after the first round. Make two rounds without recording before.";
  } else if (parameters_.trainable_set_changed()) {
    problem = "parameters were frozen or unfrozen before it. Make two rounds without recording before.";
  }
  if (!problem.empty()) throw UsageError(text("A round cannot be recorded into a graph: ", problem));
}

// Autograd is about to add to a gradient, which may already be in a reduction.
void GradientRounds::expect_gradient(std::size_t index) {
  const auto lock = enter();
  if (round_.phase == Phase::closed) return;
  if (round_.phase == Phase::idle) open();
  if (buckets_) buckets_->begin_backward();
  const auto& parameter = parameters_[index];
  if (!parameter.place) return;
  if (checks_->was_stepped(parameter)) return fail_in_backward(parameter.problem_of_step());
  if (no_sync_guards_ == 0 && parameter.has_arrived() && options_.overlap == Overlap::backward) {
    fail_in_backward(
        text("Parameter '", parameter.name,
             "' received a second gradient before wait(). Call wait() after every backward(), run all but the last "
             "backward() under no_sync(), or choose Overlap::none, with which a parameter may get many gradients."));
  }
}

void GradientRounds::mark_gradient_ready(std::size_t index, const at::Tensor& incoming) {
  const auto lock = enter();
  auto& parameter = parameters_[index];
  // Idle: a hook on another thread has ended the round with an error.
  if (round_.phase == Phase::closed || round_.phase == Phase::idle || !parameter.place) return;
  if (no_sync_guards_ > 0) {
    adopt_or_keep(parameter, incoming);
    parameter.gradient = ModuleParameter::Gradient::accumulated;
    return;
  }
  round_.phase = Phase::filling;
  if (parameter.use != ModuleParameter::Use::expected) {
    return fail_in_backward(
        text("Parameter '", parameter.name,
             "' received a gradient although find_unused() or declare_unused() marked it as unused. Pass to "
             "find_unused() the tensor on which backward() is called."));
  }
  try {
    adopt_or_keep(parameter, incoming);
    parameter.remember_gradient();
    if (parameter.has_arrived()) return;
    if (round_.arrivals.empty()) round_.since_first_gradient.restart();
    parameter.gradient = ModuleParameter::Gradient::arrived;
    parameter.ready_s = round_.since_first_gradient.seconds();
    round_.arrivals.push_back(index);
    if (!starts_in_backward()) return;
    --missing_[parameter.place->bucket];
    while (started_ < plan_.size() && missing_[started_] == 0) start_next_bucket();
  } catch (...) {
    keep_error();
    throw;
  }
}

// backward() adds in place to a gradient that is defined. Otherwise it leaves a new tensor, which becomes the place of
// a large gradient and is copied to that of a small one; or none, if a function has passed on an undefined tensor.
void GradientRounds::adopt_or_keep(ModuleParameter& parameter, const at::Tensor& incoming) {
  auto& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) return;
  const auto [index, member] = *parameter.place;
  auto* const bucket = buckets_ ? &(*buckets_)[index] : nullptr;
  if (bucket != nullptr && bucket->holds(member, gradient)) {
    bucket->note_stream();
    return;
  }
  if (const auto problem = parameter.problem_of_gradient(); !problem.empty()) fail(problem);
  if (bucket == nullptr || (!parameter.has_arrived() && bucket->adopt(gradient, incoming))) return;
  const TraceSpan span{options_.trace, "compute", "copy gradient"};
  bucket->keep(member, gradient);
}

// Collectives of all communicators of a GPU need the same order on all ranks: a comparison of calls waits for those of
// the other ranks, and the GPU may not run two collectives at once. A rank that leaves parameters out has its buckets
// full sooner than others do, before or after other batch norms.
bool GradientRounds::starts_in_backward() const {
  const bool is_ordered = device_.is_cpu() || batch_norms_.empty() || options_.unused == UnusedParameters::refused;
  return options_.overlap == Overlap::backward && is_ordered;
}

void GradientRounds::start_next_bucket() {
  std::vector<std::size_t> used;
  for (const auto index : plan_[started_].members) {
    auto& parameter = parameters_[index];
    if (!parameter.has_arrived() || !parameter.has_gradient()) fill_place(parameter);
    if (report_gradient(index)) used.push_back(index);
  }
  auto* const bucket = buckets_ ? &(*buckets_)[started_] : nullptr;
  if (bucket != nullptr) gather(*bucket, plan_[started_].members);
  if (round_.weight.weight != 0)
    checks_->look_at_gradients(used, bucket != nullptr ? bucket->view().flat : at::Tensor{});
  if (buckets_) buckets_->start(started_, round_.weight.weight);
  ++started_;
}

// On a device, gradients move to their places only now.
void GradientRounds::gather(GradientBucket& bucket, const std::vector<std::size_t>& members) {
  if (!bucket.gather()) return;
  for (const auto index : members) {
    if (parameters_[index].has_arrived()) parameters_[index].remember_gradient();
  }
}

// The round's backward() has not reached this parameter: its gradient is what was accumulated before, or zero. In a
// round that has failed it is zero.
void GradientRounds::fill_place(ModuleParameter& parameter) {
  if (parameter.tensor.grad().defined() && round_.report.failure.empty()) {
    adopt_or_keep(parameter, {});
  } else if (buckets_) {
    (*buckets_)[parameter.place->bucket].clear(parameter.place->member);
  }
}

// In the status. Returns whether this rank has a gradient of this round. One that is defined without it, such as zeros
// of an optimizer's zero_grad(false), is stepped with all the same, so that a rank that joins needs it too.
bool GradientRounds::report_gradient(std::size_t index) {
  auto& parameter = parameters_[index];
  auto& gradient = parameter.tensor.mutable_grad();
  if (gradient.defined() && !round_.is_joining) status_.set_has_gradient(index);
  const bool has_gradient = parameter.place ? parameter.has_gradient() : gradient.defined();
  if (!has_gradient || round_.is_joining) {
    const bool may_miss = options_.unused == UnusedParameters::allowed || !parameter.tensor.requires_grad() ||
                          round_.is_joining || !round_.report.failure.empty();
    if (may_miss) return false;
    status_.set_failed();
    round_.report.missing.push_back(parameter.name);
    return false;
  }
  if (round_.weight.weight == 0 && !buckets_) {  // which zero it when they are scaled
    gradient.zero_();  // an optimizer must not step with a gradient for which no rank has samples
    parameter.remember_gradient();
  }
  return true;
}

// ---- The round ends, in wait().

bool GradientRounds::wait() {
  const auto lock = enter();
  if (round_.phase == Phase::idle) open();
  if (no_sync_guards_ > 0) fail("wait() was called while a no_sync() guard exists. Destroy the guard first.");
  if (round_.report.failure.empty()) check_passes();
  return finish_round();
}

void GradientRounds::check_passes() {
  check_steps();
  for (const auto& parameter : parameters_) {
    if (!parameter.has_arrived() || !parameter.gradient_was_touched()) continue;
    fail(text("The gradient of parameter '", parameter.name,
              "' was changed between backward() and wait(), while it was being averaged. Call wait() first, then clip, "
              "step(), and zero_grad()."));
  }
  if (is_under_way() || status_.trainable_set_changed()) return;
  if (parameters_.have_accumulated()) {
    fail("Every backward() before wait() ran under no_sync(). Run the round's last one after the guard is destroyed.");
  }
  // If parameters may be unused, a rank may use none.
  if (options_.unused == UnusedParameters::refused) fail("wait() was called without a backward() before it.");
}

bool GradientRounds::finish_round() {
  round_.phase = Phase::finishing;
  has_skipped_ = false;
  try {
    while (started_ < plan_.size()) start_next_bucket();
    report_unplanned();
    wait_for_buckets();
    settle_round();
  } catch (...) {
    keep_error();
    throw;
  }
  end_round();
  return !has_skipped_;
}

// Gradients of parameters that were frozen when the buckets were planned.
void GradientRounds::report_unplanned() {
  if (!parameters_.trainable_set_changed() || !round_.report.failure.empty()) return;
  status_.set_trainable_set_changed();
  try {
    parameters_.check_trainable(device_);
  } catch (const UsageError& problem) {
    round_.report.failure = problem.what();
    return;
  }
  std::vector<std::size_t> used;
  for (const auto index : parameters_.trainable()) {
    if (!parameters_[index].place && report_gradient(index)) used.push_back(index);
  }
  if (round_.weight.weight != 0) checks_->look_at_gradients(used, {});
}

void GradientRounds::wait_for_buckets() {
  const TraceSpan span{options_.trace, "compute", "wait for gradients"};
  if (!round_.is_recorded) waiting_.begin();
  const auto report = [this] {
    if (!round_.is_recorded)
      checks_->report(status_, round_.report, [this](std::size_t index) { return overflowing_average_of(index); });
    if (!round_.report.failure.empty()) status_.set_failed();
    if (wants_stop_) status_.set_stop_requested();
    status_.exchange();
  };
  if (!checks_->reports_averages()) report();
  if (buckets_) buckets_->wait();
  if (checks_->reports_averages()) report();
  status_.wait();
  if (!round_.is_recorded) waiting_.end();
}

// The status is the same on all ranks, so all do the same here, and all throw a UsageError, which ends the round.
void GradientRounds::settle_round() {
  try {
    ++rounds_;
    if (status_.is_stop_requested()) stop_requested_ = true;
    agree_on_outcome();
    require_equal_replicas();
    const bool has_new_plan = follow_trainable_set();
    has_skipped_ = look_for_non_finite();
    if (!has_skipped_) settle_gradients();
    warn();
    buffers_.exchange(options_.buffers, round_.weight);
    if (has_new_plan || !buckets_) return;
    auto better = planner_.replan_by_arrival(round_.arrivals, communicator_);
    if (better && *better != plan_) next_plan_ = std::move(better);
  } catch (const UsageError&) {
    end_round();
    throw;
  }
}

void GradientRounds::agree_on_outcome() {
  if (!status_.has_failed()) return;
  const auto reports = gather_reports(round_.report, communicator_);
  std::vector sentences{describe_failures(reports), describe_missing(reports, parameters_.trainable().size())};
  std::erase(sentences, "");
  throw UsageError(libtrain::join(sentences, " "), ErrorScope::all_ranks);
}

void GradientRounds::require_equal_replicas() {
  if (!status_.replicas_differ()) return;
  communicator_.barrier();  // after collectives of a ShardedOptimizer that still gathers parameters
  check_trained_replicas(module_, communicator_, text(" before round ", rounds_),
                         " Use the same number of --threads on all ranks, since the rounding of sums depends on it. If "
                         "ranks differ on purpose, or their processors round differently, set Replicas::unchecked.");
}

bool GradientRounds::follow_trainable_set() {
  if (!status_.trainable_set_changed()) return false;
  require_same_model(module_, communicator_, Layouts::compared);
  parameters_.check_trainable(device_);
  average_unplanned();
  hook();
  next_plan_ = planner_.plan();
  planner_.forget_arrivals();
  return true;
}

// In separate buckets, for this round.
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
      if (!status_.has_gradient(index)) continue;
      if (gradient.defined()) {
        buckets[bucket].keep(member, gradient);
      } else {
        gradient = buckets[bucket].place(member);
      }
    }
    buckets[bucket].gather();
    buckets.start(bucket, round_.weight.weight);
  }
  buckets.wait();
}

bool GradientRounds::look_for_non_finite() {
  if (options_.non_finite == NonFinite::unchecked) return false;
  std::string found;
  if (status_.is_non_finite()) found = describe_non_finite(gather_reports(round_.report, communicator_), rounds_);
  if (found.empty()) found = describe_overflow();
  if (found.empty()) return false;
  if (options_.non_finite == NonFinite::fatal) {
    throw UsageError(found + " Lower the learning rate, clip gradients, or choose NonFinite::skipped.",
                     ErrorScope::all_ranks);
  }
  if (communicator_.rank() == 0) log_warning(found + " All ranks skip the step.");
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  return true;
}

// The wire format or a weight may make finite gradients infinite.
std::string GradientRounds::describe_overflow() {
  const auto found = checks_->first_overflowed([this](std::size_t index) { return overflowing_average_of(index); });
  if (!found) return {};
  return text("The average of the gradients of '", parameters_[*found].name, "' overflowed in round ", rounds_,
              ", in the wire format ", format_->signature(), ".");
}

// The average if the reduction may have made it infinite.
const at::Tensor* GradientRounds::overflowing_average_of(std::size_t index) {
  const auto& parameter = parameters_[index];
  if (!buckets_ || (!format_->may_overflow() && parameter.tensor.element_size() != 2)) return nullptr;
  if (parameter.place) return &place_of(parameter);
  const auto& gradient = parameter.tensor.grad();  // perhaps unfrozen in this round
  return status_.has_gradient(index) && gradient.defined() ? &gradient : nullptr;
}

// A rank that has not used a parameter gets the others' average; if no rank has a gradient, it stays undefined.
void GradientRounds::settle_gradients() {
  for (std::size_t index = 0; buckets_ && index < parameters_.size(); ++index) {
    auto& parameter = parameters_[index];
    if (parameter.place && status_.has_gradient(index)) parameter.tensor.mutable_grad() = place_of(parameter);
  }
  checks_->look_at_averages([this](std::size_t index) { return average_of(index); });
}

const at::Tensor* GradientRounds::average_of(std::size_t index) const {
  const auto& gradient = parameters_[index].tensor.grad();
  return parameters_[index].place && gradient.defined() ? &gradient : nullptr;
}

void GradientRounds::warn() {
  const auto averages = [this](std::size_t index) { return average_of(index); };
  if (options_.non_finite == NonFinite::unchecked && communicator_.rank() == 0) checks_->warn_of_nan(averages);
  const bool weighs_samples = round_.weight.total > 0;
  if (buckets_ && !weighs_samples) checks_->warn_of_zeros(averages, communicator_.rank());
}

void GradientRounds::end_round() {
  set_weight({});
  round_ = {};
  forget_gradients();
}

// The weight by samples stays.
void GradientRounds::forget_gradients() {
  round_.phase = Phase::idle;
  started_ = 0;
  status_.clear();
  checks_->close();
  if (buckets_) buckets_->release();
  parameters_.forget_gradients();
  missing_ = parameters_.count_expected(plan_);
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

// Hooks stay: this may run inside one, and autograd iterates over them. The parameters of a plan have theirs since it
// was made.
void GradientRounds::use_next_plan() {
  if (!next_plan_) return;
  try {
    use_plan(*std::exchange(next_plan_, std::nullopt));
  } catch (const UsageError&) {  // fail() has ended the round
    throw;
  } catch (...) {  // some gradients have no place
    error_ = std::current_exception();
    throw;
  }
  missing_ = parameters_.count_expected(plan_);
}

const at::Tensor& GradientRounds::place_of(const ModuleParameter& parameter) {
  return (*buckets_)[parameter.place->bucket].place(parameter.place->member);
}

// ---- Errors.

// After an error that has left a round under way, memory may still be in a reduction, and the caller made no mistake. A
// round whose recording ended before its wait(), by an exception, has computed nothing: it ends without gradients.
std::unique_lock<std::mutex> GradientRounds::enter() {
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  const bool is_open = round_.phase == Phase::accumulating || is_under_way();
  if (is_open && !round_.is_recorded && communicator_.is_recording()) {
    throw UsageError(
        "A round that began before the recording of a graph cannot continue in it. Put all backward() passes of a "
        "round, such as those under no_sync(), into the recorded body.");
  }
  if (is_open && round_.is_recorded && !communicator_.is_recording()) {
    for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
    end_round();
  }
  return lock;
}

// For catch blocks. The first error of a round counts.
void GradientRounds::keep_error() {
  if (is_under_way() && !error_) error_ = std::current_exception();
}

// Takes part in the rest of the round, so that no rank waits in vain, and throws.
void GradientRounds::fail(const std::string& failure) {
  round_.report.failure = failure;
  try {
    finish_round();
  } catch (const CommunicationError& error) {
    throw UsageError(text(failure, " The other ranks do not receive this error: ", error.what()));
  }
  throw UsageError(failure);  // not reached: the outcome of a round that has failed is an error on all ranks
}

// In a hook. Where layers sum over ranks in backward(), the others would wait there in vain: then the round goes on
// until the end of this backward().
void GradientRounds::fail_in_backward(const std::string& failure) {
  if (batch_norms_.empty()) fail(failure);
  if (!round_.report.failure.empty()) return;
  round_.report.failure = failure;
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
    const auto rounds = weak.lock();
    if (!rounds) return;
    const auto lock = rounds->enter();
    // A round of several passes goes on with the next, in whose layers the others wait: wait() reports it.
    if (rounds->no_sync_guards_ > 0 || rounds->options_.overlap != Overlap::backward) return;
    if (!rounds->round_.report.failure.empty()) rounds->fail(std::string{rounds->round_.report.failure});
  });
}

// Frozen parameters may change, such as targets that follow an average.
void GradientRounds::check_steps() {
  for (const auto& parameter : parameters_) {
    if (parameter.place && checks_->was_stepped(parameter)) fail(parameter.problem_of_step());
  }
}

}  // namespace libtrain::detail
