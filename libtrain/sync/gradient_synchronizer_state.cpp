#include <libtrain/sync/gradient_synchronizer_state.hpp>

#include <algorithm>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/dense_copy.hpp>
#include <libtrain/sync/finite_gradient.hpp>

namespace libtrain {

using detail::ModuleParameter;

// Before autograd adds to a gradient that may be on its way already.
void GradientSynchronizer::State::before_gradient(std::size_t index) {
  const std::lock_guard lock(mutex);
  if (has_ended) return;
  // Here and not after the first gradient: a new plan moves gradients, to some of which other threads may be adding.
  if (!in_window) open_window();
  reducer.expect_gradients();
  const auto& parameter = parameters[index];
  if (!parameter.planned) return;
  if (parameter.was_stepped()) fail_stepped(parameter);
  if (no_sync_guards == 0 && parameter.arrived && options.overlap == Overlap::backward) {
    fail_round(text("Parameter '", parameter.name,
                    "' received a second gradient before wait(): call wait() after every "
                    "backward(), run all but the last under no_sync(), or choose Overlap::none, under which backward() "
                    "may reach a parameter many times."));
  }
}

void GradientSynchronizer::State::fail_stepped(const ModuleParameter& parameter) {
  fail_round(text("Parameter '", parameter.name,
                  "' was stepped with gradients that were not averaged: call wait() between backward() and the "
                  "optimizer's step()."));
}

void GradientSynchronizer::State::on_gradient(std::size_t index, const at::Tensor& incoming) {
  const std::lock_guard lock(mutex);
  if (has_ended) return;
  auto& parameter = parameters[index];
  if (!parameter.planned) return;
  adopt_place(parameter, incoming);
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
  move_to_place(parameter);
  parameter.remember_gradient();
  if (parameter.arrived) return;
  if (arrivals.empty()) since_first_gradient.restart();
  parameter.arrived = true;
  parameter.ready_s = since_first_gradient.seconds();
  arrivals.push_back(index);
  if (options.overlap == Overlap::none) return;
  --missing[parameter.bucket];
  start_full_buckets();
}

void GradientSynchronizer::State::open_window() {
  adopt_next_plan();
  check_window();
  has_retrained = parameters.retrained();
  parameters.remember_values(rounds);
  in_window = true;
}

void GradientSynchronizer::State::check_window() {
  const auto* replaced = parameters.first_replaced();
  if (replaced == nullptr) return;
  const bool is_converted = !replaced->tensor.is_cpu() || replaced->tensor.scalar_type() != replaced->type;
  fail_round(text("Parameter '", replaced->name, "' was ",
                  is_converted ? "converted to another dtype or device" : "given other memory, as torch::load() does,",
                  " after the synchronizer was made, which has taken its hook away: ",
                  is_converted ? "convert the module" : "load the module", " first, then make the synchronizer."));
}

std::string GradientSynchronizer::State::problem_of(const ModuleParameter& parameter, const at::Tensor& place) const {
  const auto& gradient = parameter.tensor.grad();
  if (gradient.requires_grad()) {
    return text("The gradient of parameter '", parameter.name,
                "' itself requires a gradient: backward() with create_graph cannot be synchronised.");
  }
  if (gradient.layout() != at::kStrided) {
    return text("The gradient of parameter '", parameter.name,
                "' is sparse, which buckets cannot hold: make the embedding with sparse(false).");
  }
  if (place.defined() && (place.scalar_type() != gradient.scalar_type() || place.sizes() != gradient.sizes())) {
    return text("The gradient of parameter '", parameter.name, "' is of dtype ", gradient.scalar_type(), " and shape ",
                gradient.sizes(), ", and was ", place.scalar_type(), " ", place.sizes(),
                " when the synchronizer was made: convert the module before that.");
  }
  return {};
}

// Where autograd has left a large gradient may become its place.
void GradientSynchronizer::State::adopt_place(const ModuleParameter& parameter, const at::Tensor& incoming) {
  const auto& gradient = parameter.tensor.grad();
  if (!gradient.defined() || !reducer.has_memory() || parameter.arrived) return;
  if (reducer.holds(parameter.bucket, parameter.member, gradient)) return;
  reducer.adopt(parameter.bucket, gradient, incoming);
}

// backward() adds to a gradient that is defined, in place; otherwise it leaves a tensor of its own making, which is
// copied to its place here. A function may also have passed on nothing.
void GradientSynchronizer::State::move_to_place(ModuleParameter& parameter) {
  auto& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) return;
  static const at::Tensor kNone;
  const bool has_place = reducer.has_memory() && parameter.planned;
  if (has_place && reducer.holds(parameter.bucket, parameter.member, gradient)) return;
  const auto& place = has_place ? reducer.place(parameter.bucket, parameter.member) : kNone;
  if (const auto problem = problem_of(parameter, place); !problem.empty()) fail_round(problem);
  if (!has_place) return;
  const TraceSpan span{options.trace, "compute", "copy gradient"};
  detail::copy_dense(gradient, place);
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
    if (!parameter.arrived || !parameter.has_gradient()) keep_in_place(parameter);
    const bool used = parameter.has_gradient() && !joining;
    flags.used(member) = used ? 1 : 0;
    if (used && reducer.has_memory() && !has_contributed) {
      has_contributed = !detail::is_zero(parameter.tensor.grad());
      has_zeros = true;
    }
    if (used || !is_expected(parameter)) continue;
    flags.missing(member) = 1;
    report.missing.push_back(parameter.name);
  }
  flags.failed() = report.failure.empty() ? 0 : 1;
  flags.retrained() = has_retrained ? 1 : 0;
  if (options.replicas == Replicas::compared) flags.set_replica(parameters.digest_of_probes(plan[bucket].members));
  if (weight.weight != 0) {
    check_finite(bucket);
  } else if (!reducer.has_memory()) {
    // What no rank has samples for must not be stepped; where there are buckets, they are zeroed.
    for (const auto index : plan[bucket].members) {
      if (!parameters[index].has_gradient()) continue;
      parameters[index].tensor.mutable_grad().zero_();
      parameters[index].remember_gradient();
    }
  }
  reducer.start_next(weight.weight);
}

// Before the reduction, which spreads NaN over all ranks, so that the rank can be named.
void GradientSynchronizer::State::check_finite(std::size_t bucket) {
  if (options.non_finite == NonFinite::unchecked) return;
  for (const auto index : plan[bucket].members) {
    const auto& parameter = parameters[index];
    if (!parameter.has_gradient() || detail::is_finite(parameter.tensor.grad())) continue;
    reducer.flags(bucket).non_finite() = 1;
    report.non_finite.push_back(parameter.name);
  }
}

void GradientSynchronizer::State::fail_round(const std::string& failure, Failure kind) {
  if (reducer.started() < reducer.size()) {
    report.failure = failure;
    finish_round();
  } else if (kind == Failure::spoiled) {
    reducer.finish();  // the others' round; they do not know
    ++rounds;
    reset_round();
  }
  throw UsageError(failure);
}

void GradientSynchronizer::State::reset_round() {
  reducer.reset();
  for (auto& parameter : parameters) parameter.arrived = parameter.accumulated = parameter.excused = false;
  count_missing();
  report = {};
  weigh_round({});
  arrivals.clear();
  in_window = in_round = joining = has_retrained = unplanned_non_finite = false;
  has_zeros = has_contributed = false;
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
