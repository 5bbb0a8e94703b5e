#include <libtrain/sync/gradient_synchronizer_state.hpp>

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/finite_gradient.hpp>

namespace libtrain {

using detail::ModuleParameter;

void GradientSynchronizer::State::on_gradient(std::size_t index) {
  const std::lock_guard lock(mutex);
  auto& parameter = parameters[index];
  if (!in_window) open_window();
  if (no_sync_guards > 0) {
    move_to_place(parameter);
    parameter.accumulated = true;
    return;
  }
  in_round = true;
  if (parameter.excused || parameter.declared) {
    fail_round(text("Parameter '", parameter.name,
                    "' received a gradient although find_unused() or declare_unused() "
                    "said that it would not: give find_unused() the tensor that backward() starts from."));
  }
  if (parameter.arrived && options.overlap == Overlap::backward) fail_round(advice_on_second_gradient(parameter));
  move_to_place(parameter);
  if (parameter.arrived) return;
  parameter.arrived = true;
  parameter.ready_s = since_first_gradient.seconds();
  arrivals.push_back(index);
  if (options.overlap == Overlap::none) return;
  --missing[parameter.bucket];
  start_full_buckets();
}

void GradientSynchronizer::State::open_window() {
  adopt_next_plan();
  has_retrained = parameters.retrained();
  parameters.remember_values();
  since_first_gradient.restart();
  in_window = true;
}

std::string GradientSynchronizer::State::advice_on_second_gradient(const ModuleParameter& parameter) const {
  if (const auto* changed = parameters.first_changed()) {
    return text("Parameter '", changed->name,
                "' was stepped with gradients that were not averaged: call wait() between "
                "backward() and the optimizer's step().");
  }
  return text(
      "Parameter '", parameter.name,
      "' received a second gradient before wait(): call wait() after every "
      "backward(), run all but the last under no_sync(), or choose Overlap::none, under which backward() may reach "
      "a parameter many times.");
}

// backward() adds to a gradient that is defined, in place; otherwise it leaves a tensor of its own making, which is
// copied to its place here.
void GradientSynchronizer::State::move_to_place(ModuleParameter& parameter) {
  auto& gradient = parameter.tensor.mutable_grad();
  const bool has_place = reducer.has_memory() && parameter.planned;
  if (has_place && gradient.is_same(reducer.place(parameter.bucket, parameter.member))) return;
  const auto name = text("'", parameter.name, "'");
  if (!gradient.defined()) {
    fail_round(text("backward() reached parameter ", name,
                    " without a gradient for it: a custom function returned an undefined tensor."));
  }
  if (gradient.requires_grad()) {
    fail_round(text("The gradient of parameter ", name,
                    " itself requires a gradient: backward() with create_graph cannot be synchronised."));
  }
  if (gradient.layout() != at::kStrided) {
    fail_round(text("The gradient of parameter ", name,
                    " is sparse, which buckets cannot hold: make the embedding with sparse(false)."));
  }
  if (!has_place) return;
  const auto& place = reducer.place(parameter.bucket, parameter.member);
  if (place.scalar_type() != gradient.scalar_type() || place.sizes() != gradient.sizes()) {
    fail_round(text("The gradient of parameter ", name, " is of dtype ", gradient.scalar_type(), " and shape ",
                    gradient.sizes(), ", and was ", place.scalar_type(), " ", place.sizes(),
                    " when the synchronizer was made: convert the module before that."));
  }
  const TraceSpan span{options.trace, "compute", "copy gradient"};
  const at::NoGradGuard no_grad;
  place.copy_(gradient);
  gradient = place;
}

// Of a parameter that the round's backward() has not reached: what was accumulated, or zero. A round that has failed
// carries nothing but the news.
void GradientSynchronizer::State::keep_in_place(ModuleParameter& parameter) {
  if (!reducer.has_memory()) return;
  if (parameter.tensor.grad().defined() && report.failure.empty()) {
    move_to_place(parameter);
  } else {
    reducer.place(parameter.bucket, parameter.member).zero_();
  }
}

bool GradientSynchronizer::State::is_expected(const ModuleParameter& parameter) const {
  return options.unused == UnusedParameters::refused && parameter.tensor.requires_grad() && !joining &&
         report.failure.empty();
}

void GradientSynchronizer::State::start_full_buckets() {
  while (reducer.started() < reducer.size() && missing[reducer.started()] == 0) start_bucket();
}

void GradientSynchronizer::State::start_bucket() {
  const auto bucket = reducer.started();
  auto& flags = reducer.flags(bucket);
  for (std::size_t member = 0; member < plan[bucket].members.size(); ++member) {
    auto& parameter = parameters[plan[bucket].members[member]];
    if (!parameter.arrived) keep_in_place(parameter);
    const bool used = parameter.has_gradient() && !joining;
    flags.used(member) = used ? 1 : 0;
    if (used || !is_expected(parameter)) continue;
    flags.missing(member) = 1;
    report.missing.push_back(parameter.name);
  }
  flags.failed() = report.failure.empty() ? 0 : 1;
  flags.retrained() = has_retrained ? 1 : 0;
  if (options.non_finite != NonFinite::unchecked && weight.weight != 0) check_finite(bucket);
  reducer.start_next(weight.weight);
}

// Before the reduction, which spreads NaN over all ranks, so that the rank can be named.
void GradientSynchronizer::State::check_finite(std::size_t bucket) {
  for (const auto index : plan[bucket].members) {
    const auto& parameter = parameters[index];
    if (!parameter.has_gradient() || detail::is_finite(parameter.tensor.grad())) continue;
    reducer.flags(bucket).non_finite() = 1;
    report.non_finite.push_back(parameter.name);
  }
}

void GradientSynchronizer::State::fail_round(const std::string& failure) {
  report.failure = failure;
  if (reducer.started() < reducer.size()) finish_round();
  throw UsageError(failure);
}

void GradientSynchronizer::State::reset_round() {
  reducer.reset();
  for (auto& parameter : parameters) parameter.arrived = parameter.accumulated = parameter.excused = false;
  count_missing();
  report = {};
  weigh_round({});
  arrivals.clear();
  in_window = in_round = joining = has_retrained = false;
}

void GradientSynchronizer::State::weigh_round(const detail::SampleWeight& the_weight) {
  weight = the_weight;
  for (const auto& batch_norm : batch_norms) batch_norm->set_gradient_weight(weight.weight);
}

void GradientSynchronizer::State::count_missing() {
  missing.clear();
  for (const auto& bucket : plan) {
    const auto comes = [this](std::size_t index) { return !parameters[index].declared && !parameters[index].excused; };
    missing.push_back(static_cast<std::size_t>(std::count_if(bucket.members.begin(), bucket.members.end(), comes)));
  }
}

void GradientSynchronizer::State::require_unused_allowed(const char* caller) const {
  if (options.unused == UnusedParameters::allowed) return;
  throw UsageError(text(caller,
                        " was called, but unused parameters are refused: make the synchronizer with "
                        "{.unused = UnusedParameters::allowed}."));
}

}  // namespace libtrain
