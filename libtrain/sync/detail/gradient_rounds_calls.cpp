// The calls of a GradientSynchronizer other than wait(): they prepare rounds, or report on them.

#include <libtrain/sync/detail/gradient_rounds.hpp>

#include <optional>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/synchronization_statistics.hpp>

namespace libtrain::detail {

void GradientRounds::zero_grad() {
  const auto lock = enter();
  if (is_under_way()) fail("zero_grad() was called between backward() and wait(). Call wait() first, then step().");
  if (round_.phase != Phase::idle) check_steps();
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  forget_gradients();
  use_next_plan();
}

void GradientRounds::enter_no_sync() {
  const auto lock = enter();
  if (is_under_way()) fail("no_sync() was called between backward() and wait(). Call it before backward().");
  ++no_sync_guards_;
}

void GradientRounds::leave_no_sync() {
  const std::lock_guard lock(mutex_);
  --no_sync_guards_;
  if (buckets_) buckets_->end_backward();  // a forward pass may follow
}

std::int64_t GradientRounds::set_samples(std::int64_t samples) {
  const auto lock = enter();
  exchange_samples(samples, samples < 0 ? text("set_samples() was given ", samples, ". Give 0 samples or more.") : "");
  return round_.weight.total;
}

bool GradientRounds::join() {
  const auto lock = enter();
  exchange_samples(SampleWeights::kJoined, "");
  const bool is_over = round_.weight.all_joined;
  if (is_over) set_weight({});
  if (!is_over && round_.phase == Phase::idle) open();
  if (parameters_.have_accumulated()) {
    const std::string lost =
        "join() was called with gradients accumulated under no_sync(), which would be lost. End the round with one "
        "more backward() and wait(), or zero_grad().";
    if (is_over) throw UsageError(lost);
    fail(lost);
  }
  if (is_over) return false;
  // A gradient of the round before must not be stepped with again, on this rank alone, if no rank uses the parameter.
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  round_.is_joining = true;
  finish_round();
  return true;
}

// All ranks throw if one has a problem.
void GradientRounds::exchange_samples(std::int64_t samples, std::string problem) {
  if (communicator_.is_recording()) {
    throw UsageError(
        "set_samples() or join() was called while a graph is recorded, whose replays would repeat the weights of this "
        "round. Give all ranks equally large batches in recorded steps.");
  }
  if (is_under_way())
    fail("set_samples() or join() was called after backward(). Call it before the round's backward().");
  if (problem.empty() && parameters_.have_accumulated() && !batch_norms_.empty()) {
    problem =
        "set_samples() was called after a backward() under no_sync(), in which SyncBatchNorm has used other weights. "
        "Call it before the round's first backward().";
  }
  const auto weight = weights_.exchange(problem.empty() ? samples : SampleWeights::kRefused);
  if (weight.is_refused) {
    throw UsageError(describe_failures(gather_reports({.failure = problem}, communicator_)), ErrorScope::all_ranks);
  }
  set_weight(weight);
}

void GradientRounds::set_weight(const SampleWeight& weight) {
  round_.weight = weight;
  for (const auto& batch_norm : batch_norms_) batch_norm->set_gradient_weight(weight.weight);
}

void GradientRounds::request_stop() {
  const std::lock_guard lock(mutex_);
  wants_stop_ = true;
}

void GradientRounds::find_unused(const std::vector<at::Tensor>& outputs) {
  const auto lock = enter();
  require_unused_allowed("find_unused()");
  if (is_under_way()) fail("find_unused() was called after a backward() of its round. Call it before backward().");
  if (no_sync_guards_ > 0) return;
  if (round_.phase == Phase::idle) open();
  parameters_.find_unused(outputs);
  missing_ = parameters_.count_expected(plan_);
}

void GradientRounds::declare_unused(const std::vector<std::string>& names) {
  const auto lock = enter();
  require_unused_allowed("declare_unused()");
  if (round_.phase != Phase::idle) {
    throw UsageError("declare_unused() was called inside a round. Call it between wait() and backward().");
  }
  parameters_.declare_unused(names);
  missing_ = parameters_.count_expected(plan_);
}

void GradientRounds::broadcast_buffers() {
  const auto lock = enter();
  if (is_under_way()) fail("broadcast_buffers() was called between backward() and wait(). Call wait() first.");
  buffers_.broadcast(0);
}

BucketLimits GradientRounds::tune() {
  const auto lock = enter();
  if (rounds_ == 0 || round_.phase != Phase::idle) {
    throw UsageError(
        "tune() uses the times at which gradients become ready. Call it between two rounds, after the first.");
  }
  if (!device_.is_cpu()) {
    throw UsageError(text("tune() measures on the host, and the parameters are on ", device_,
                          ". Set SynchronizerOptions::buckets instead."));
  }
  auto plan = planner_.tune(communicator_);
  hook();  // parameters may have been unfrozen
  next_plan_ = std::move(plan);
  return planner_.limits();
}

SynchronizationStatistics GradientRounds::statistics() {
  const std::lock_guard lock(mutex_);
  SynchronizationStatistics statistics{.rounds = rounds_, .seconds_waiting = waiting_.seconds()};
  if (buckets_) {
    buckets_->add_to(statistics);
  } else {
    for (const auto& bucket : plan_) statistics.buckets.push_back({.bytes = bucket.bytes});
  }
  return statistics;
}

void GradientRounds::require_unused_allowed(const char* caller) const {
  if (options_.unused == UnusedParameters::allowed) return;
  throw UsageError(text(caller,
                        " was called, but unused parameters are refused. Create the synchronizer with "
                        "{.unused = UnusedParameters::allowed}."));
}

}  // namespace libtrain::detail
