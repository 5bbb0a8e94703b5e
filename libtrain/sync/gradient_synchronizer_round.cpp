// How a round ends.

#include <algorithm>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/finite_gradient.hpp>
#include <libtrain/sync/gradient_synchronizer_state.hpp>
#include <libtrain/sync/replica_check.hpp>

namespace libtrain {

using detail::RoundReport;

namespace {

std::vector<RoundReport> gather(const RoundReport& mine, Communicator& communicator) {
  const CallPurpose purpose{communicator, "the reports of a round"};
  std::vector<RoundReport> reports;
  for (const auto& bytes : communicator.all_gather_bytes(mine.to_bytes())) {
    reports.push_back(RoundReport::from_bytes(bytes));
  }
  return reports;
}

}  // namespace

bool GradientSynchronizer::State::wait() {
  const std::lock_guard lock(mutex);
  if (!in_window) {
    adopt_next_plan();
    check_window();
    has_retrained = parameters.retrained();
    parameters.remember_values(rounds);
  }
  if (no_sync_guards > 0) {
    fail_round("wait() was called while a no_sync() guard lives: let it go before the round's last backward().");
  }
  check_passes();
  return finish_round();
}

void GradientSynchronizer::State::check_passes() {
  if (const auto* stepped = in_window ? parameters.first_stepped() : nullptr) {
    fail_round(text("Parameter '", stepped->name,
                    "' was changed between backward() and wait(), while its gradient was "
                    "not averaged yet: call wait() before the optimizer's step()."));
  }
  bool any_accumulated = false;
  for (const auto& parameter : parameters) {
    any_accumulated = any_accumulated || parameter.accumulated;
    if (!parameter.arrived || !parameter.gradient_was_touched()) continue;
    fail_round(text("The gradient of parameter '", parameter.name,
                    "' was changed between backward() and wait(), while it "
                    "was being averaged: call wait() first, then clip, step(), and zero_grad()."));
  }
  if (in_round || has_retrained) return;
  if (any_accumulated) {
    fail_round(
        "Every backward() before wait() ran under no_sync(): run the round's last one after the guard has gone.");
  }
  // Where parameters may be unused, a rank may use none.
  if (options.unused == UnusedParameters::refused) fail_round("wait() was called without a backward() before it.");
}

bool GradientSynchronizer::State::finish_round() {
  while (reducer.started() < reducer.size()) start_bucket();
  {
    const TraceSpan span{options.trace, "compute", "wait for gradients"};
    const Stopwatch stopwatch;
    reducer.finish();
    seconds_waiting += stopwatch.seconds();
  }
  ++rounds;
  agree_on_outcome(reducer);
  require_equal_replicas();
  const bool retrained = follow_retraining();
  has_skipped = look_for_non_finite();
  if (!has_skipped) settle_gradients();
  warn_of_nan();
  warn_of_zeros();
  exchange_buffers();
  if (!retrained) replan_by_arrival();
  reset_round();
  return !has_skipped;
}

void GradientSynchronizer::State::agree_on_outcome(detail::BucketReducer& reduced) {
  bool failed = false;
  for (std::size_t bucket = 0; bucket < reduced.size(); ++bucket) {
    failed = failed || reduced.flags(bucket).failed() > 0 || reduced.flags(bucket).any_missing();
    unplanned_non_finite = unplanned_non_finite || (&reduced != &reducer && reduced.flags(bucket).non_finite() > 0);
  }
  if (!failed) return;
  const auto reports = gather(report, communicator);
  reset_round();
  auto failures = detail::describe_failures(reports);
  const auto missing_text = detail::describe_missing(reports, parameters.trainable().size());
  if (!failures.empty() && !missing_text.empty()) failures += " ";
  throw UsageError(failures + missing_text, ErrorScope::all_ranks);
}

// The flags are the same on all ranks, and so is what they do here.
void GradientSynchronizer::State::require_equal_replicas() {
  bool differ = false;
  for (std::size_t bucket = 0; bucket < reducer.size(); ++bucket) {
    differ = differ || reducer.flags(bucket).replicas_differ();
  }
  if (!differ) return;
  communicator.barrier();  // parameters that a ShardedOptimizer still gathers come first
  try {
    detail::check_trained_replicas(module, communicator, text(" before round ", rounds),
                                   " Give all ranks the same number of --threads, on which the rounding of sums "
                                   "depends. Ranks that differ on purpose, or whose processors round differently, need "
                                   "Replicas::unchecked.");
  } catch (...) {
    reset_round();
    throw;
  }
}

// NaN seldom comes alone: one element of each gradient is enough to see it before weights are saved and time is lost.
void GradientSynchronizer::State::warn_of_nan() {
  if (options.non_finite != NonFinite::unchecked || has_warned_of_nan || communicator.rank() != 0) return;
  for (const auto& parameter : parameters) {
    const auto& gradient = parameter.tensor.grad();
    if (!parameter.planned || !gradient.defined() || !detail::begins_with_nan(gradient)) continue;
    has_warned_of_nan = true;
    log_warning(text("The gradient of parameter '", parameter.name, "' holds NaN after round ", rounds,
                     ": weights that are stepped with it hold NaN as well, on all ranks. NonFinite::fatal names the "
                     "rank that it comes from, NonFinite::skipped leaves such rounds out; a LossScaler does so, too."));
    return;
  }
}

// An empty batch has a loss of NaN and a gradient of zero, which makes the average too small.
void GradientSynchronizer::State::warn_of_zeros() {
  if (!has_zeros || has_contributed || has_warned_of_zeros || weight.total > 0) return;
  bool is_zero = true;
  for (std::size_t bucket = 0; bucket < reducer.size() && is_zero; ++bucket) {
    for (std::size_t member = 0; member < plan[bucket].members.size() && is_zero; ++member) {
      is_zero = detail::is_zero(reducer.place(bucket, member));
    }
  }
  if (is_zero) return;
  has_warned_of_zeros = true;
  log_warning(text("Every gradient of rank ", communicator.rank(), " was zero in round ", rounds,
                   ", as after an empty batch, and the average over all ranks counts it like the others': call "
                   "set_samples(batch.size()) before backward() where batches may differ in size."));
}

bool GradientSynchronizer::State::look_for_non_finite() {
  if (options.non_finite == NonFinite::unchecked) return false;
  std::string found;
  bool told = unplanned_non_finite;
  for (std::size_t bucket = 0; bucket < reducer.size(); ++bucket) told = told || reducer.flags(bucket).non_finite() > 0;
  if (told) found = detail::describe_non_finite(gather(report, communicator), rounds);
  for (std::size_t bucket = 0; bucket < reducer.size() && found.empty() && reducer.may_overflow(); ++bucket) {
    for (std::size_t member = 0; member < plan[bucket].members.size(); ++member) {
      // All ranks hold the same bits, and so find the same.
      if (detail::is_finite(reducer.place(bucket, member))) continue;
      found = text("The average of the gradients of '", parameters[plan[bucket].members[member]].name,
                   "' overflowed in "
                   "round ",
                   rounds, ", in the wire format ", reducer.format_signature(), ".");
      break;
    }
  }
  if (found.empty()) return false;
  if (options.non_finite == NonFinite::fatal) {
    reset_round();
    throw UsageError(found + " Lower the learning rate, clip gradients, or choose NonFinite::skipped.",
                     ErrorScope::all_ranks);
  }
  if (communicator.rank() == 0) log_warning(found + " All ranks skip the step.");
  for (auto& parameter : parameters) parameter.tensor.mutable_grad().reset();
  return true;
}

// A rank that has not used a parameter gets the others' average; where no rank has, the gradient stays as it was.
void GradientSynchronizer::State::settle_gradients() {
  if (!reducer.has_memory()) return;
  for (std::size_t bucket = 0; bucket < plan.size(); ++bucket) {
    for (std::size_t member = 0; member < plan[bucket].members.size(); ++member) {
      if (reducer.flags(bucket).used(member) <= 0) continue;
      auto& gradient = parameters[plan[bucket].members[member]].tensor.mutable_grad();
      const auto& place = reducer.place(bucket, member);
      if (!gradient.is_same(place)) gradient = place;
    }
  }
}

void GradientSynchronizer::State::exchange_buffers() {
  if (options.buffers == BufferPolicy::broadcast) buffers.broadcast(weight.source);
  if (options.buffers == BufferPolicy::averaged) buffers.average(weight.weight, weight.source);
}

}  // namespace libtrain
