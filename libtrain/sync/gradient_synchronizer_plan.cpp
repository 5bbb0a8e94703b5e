// Which gradient lives in which bucket, and how that changes between rounds.

#include <algorithm>
#include <sstream>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/agreement.hpp>
#include <libtrain/sync/bucket_tuning.hpp>
#include <libtrain/sync/dense_copy.hpp>
#include <libtrain/sync/finite_gradient.hpp>
#include <libtrain/sync/gradient_synchronizer_state.hpp>
#include <libtrain/sync/link_measurement.hpp>
#include <libtrain/sync/model_signature.hpp>

namespace libtrain {

using detail::BucketMember;
using detail::BucketReducer;

namespace {

std::vector<std::vector<BucketMember>> members_of(const std::vector<Bucket>& plan,
                                                  const detail::ModuleParameters& parameters) {
  std::vector<std::vector<BucketMember>> members(plan.size());
  for (std::size_t bucket = 0; bucket < plan.size(); ++bucket) {
    for (const auto index : plan[bucket].members) {
      members[bucket].push_back(
          {.name = parameters[index].name, .parameter = parameters[index].tensor, .type = parameters[index].type});
    }
  }
  return members;
}

std::vector<GradientSpec> specs_of(const std::vector<std::size_t>& order, const detail::ModuleParameters& parameters) {
  std::vector<GradientSpec> specs;
  for (const auto index : order) {
    const auto& parameter = parameters[index];
    specs.push_back({static_cast<std::size_t>(parameter.tensor.numel()), detail::gradient_type(parameter)});
  }
  return specs;
}

}  // namespace

void GradientSynchronizer::State::check_trainable() {
  const auto trainable = parameters.trainable();
  if (trainable.empty()) {
    throw UsageError("The module has no parameter that requires a gradient, so there is nothing to synchronise.");
  }
  for (const auto index : trainable) {
    auto& parameter = parameters[index];
    parameter.type = parameter.tensor.scalar_type();
    detail::gradient_type(parameter);
    if (parameter.tensor.is_cpu()) continue;
    throw UsageError(
        text("Parameter '", parameter.name, "' is on ", parameter.tensor.device(),
             ", and this version synchronises gradients in host memory only: move the module to the CPU."));
  }
}

void GradientSynchronizer::State::check_given_plan() const {
  if (options.plan.empty()) return;
  std::vector<int> times(parameters.size());
  for (const auto& names : options.plan) {
    const detail::ModuleParameter* first = nullptr;
    for (const auto& name : names) {
      const auto index = parameters.index_of(name);
      ++times[index];
      if (first == nullptr) first = &parameters[index];
      if (first->tensor.scalar_type() == parameters[index].tensor.scalar_type()) continue;
      throw UsageError(text("The given plan has '", first->name, "' of dtype ", first->tensor.scalar_type(), " and '",
                            name, "' of dtype ", parameters[index].tensor.scalar_type(),
                            " in one bucket: a bucket is of one."));
    }
  }
  for (const auto index : parameters.trainable()) {
    if (times[index] == 1) continue;
    throw UsageError(text("The given plan names parameter '", parameters[index].name, "' ", times[index],
                          " times: name each trainable parameter once."));
  }
}

// Buckets of equal size would otherwise be averaged with each other's.
void GradientSynchronizer::State::require_same_plan() const {
  std::vector<std::string> lines;
  for (const auto& bucket : plan) {
    std::vector<std::string> names;
    for (const auto index : bucket.members) names.push_back("'" + parameters[index].name + "'");
    lines.push_back(text("a bucket of ", libtrain::join(names, ", ")));
  }
  lines.push_back(text("limits of ", limits.bucket_bytes, ", ", limits.first_bucket_bytes, " and ", limits.alone_bytes,
                       " bytes, ", options.plan.empty() ? "a computed" : "a given", " plan, re-planning ",
                       options.replan ? "on" : "off", ", wire format ", reducer.format_signature(), ", policies ",
                       static_cast<int>(options.unused), " ", static_cast<int>(options.non_finite), " ",
                       static_cast<int>(options.buffers), " ", static_cast<int>(options.replicas)));
  detail::require_agreement({.subject = "The synchronizer's plan",
                             .unit = "lines",
                             .advice = "Give SynchronizerOptions the same values on every rank."},
                            lines, communicator);
}

std::vector<Bucket> GradientSynchronizer::State::given_plan() const {
  std::vector<Bucket> buckets;
  for (const auto& names : options.plan) {
    Bucket bucket;
    for (const auto& name : names) {
      const auto index = parameters.index_of(name);
      const auto& parameter = parameters[index];
      if (!parameter.tensor.requires_grad()) continue;
      bucket.type = detail::gradient_type(parameter);
      bucket.bytes += parameter.tensor.nbytes();
      bucket.members.push_back(index);
    }
    if (!bucket.members.empty()) buckets.push_back(std::move(bucket));
  }
  const auto unnamed = unnamed_in_given_plan();
  for (auto& bucket : buckets_of(unnamed)) buckets.push_back(std::move(bucket));
  return buckets;
}

// Frozen when the plan was given.
std::vector<std::size_t> GradientSynchronizer::State::unnamed_in_given_plan() const {
  std::vector<bool> named(parameters.size());
  for (const auto& names : options.plan) {
    for (const auto& name : names) named[parameters.index_of(name)] = true;
  }
  auto unnamed = parameters.trainable();
  std::erase_if(unnamed, [&](std::size_t index) { return named[index]; });
  return unnamed;
}

std::vector<Bucket> GradientSynchronizer::State::buckets_of(const std::vector<std::size_t>& order) const {
  auto buckets = plan_buckets(specs_of(order, parameters), limits);
  for (auto& bucket : buckets) {
    for (auto& member : bucket.members) member = order[member];
  }
  return buckets;
}

std::vector<Bucket> GradientSynchronizer::State::plan_of(const std::vector<std::size_t>& order) const {
  return options.plan.empty() ? buckets_of(order) : given_plan();
}

void GradientSynchronizer::State::adopt(const std::vector<Bucket>& the_plan) {
  plan = the_plan;
  for (auto& parameter : parameters) parameter.planned = false;
  for (std::size_t bucket = 0; bucket < plan.size(); ++bucket) {
    for (std::size_t member = 0; member < plan[bucket].members.size(); ++member) {
      auto& parameter = parameters[plan[bucket].members[member]];
      parameter.planned = true;
      parameter.bucket = bucket;
      parameter.member = member;
    }
  }
  // Where gradients are defined they keep the old memory alive until they have moved.
  reducer.plan(plan, members_of(plan, parameters), limits.alone_bytes);
  for (auto& parameter : parameters) {
    if (parameter.planned && parameter.tensor.grad().defined()) move_to_place(parameter);
  }
  if (!self.expired()) add_hooks();
}

void GradientSynchronizer::State::adopt_next_plan() {
  if (!next_plan) return;
  const auto adopted = std::move(*next_plan);
  next_plan.reset();
  adopt(adopted);
  count_missing();
}

// Once: the order of registration is a guess, the order of the first backward() is known.
void GradientSynchronizer::State::replan_by_arrival() {
  if (!options.replan || has_replanned || !options.plan.empty() || !reducer.has_memory()) return;
  const CallPurpose purpose{communicator, "the order of gradients in the first round"};
  std::istringstream seen_by_rank_0{communicator.broadcast_bytes(libtrain::join(arrivals, " "), 0)};
  std::vector<std::size_t> order;
  for (std::size_t index = 0; seen_by_rank_0 >> index;) order.push_back(index);
  if (order.empty()) return;  // rank 0 had no data; the next round tells
  for (const auto index : parameters.trainable()) {
    if (std::find(order.begin(), order.end(), index) == order.end()) order.push_back(index);
  }
  has_replanned = true;
  auto better = plan_of(order);
  if (better != plan) next_plan = std::move(better);
}

bool GradientSynchronizer::State::follow_retraining() {
  bool any = false;
  for (std::size_t bucket = 0; bucket < reducer.size(); ++bucket) any = any || reducer.flags(bucket).retrained() > 0;
  if (!any) return false;
  try {
    require_same_model(module, communicator, Layouts::compared);
    check_trainable();
  } catch (...) {
    reset_round();
    throw;
  }
  average_unplanned();
  add_hooks();
  next_plan = plan_of(parameters.trainable());
  has_replanned = false;
  return true;
}

// Gradients of parameters that were frozen when the buckets were planned: in buckets of their own, this once.
void GradientSynchronizer::State::average_unplanned() {
  std::vector<std::size_t> fresh;
  for (const auto index : parameters.trainable()) {
    if (!parameters[index].planned) fresh.push_back(index);
  }
  if (fresh.empty()) return;
  const auto buckets = buckets_of(fresh);
  BucketReducer once{communicator, nullptr, options.trace};
  if (!once.has_memory()) {
    for (const auto index : fresh) look_at_unplanned(parameters[index]);
    return;
  }
  once.plan(buckets, members_of(buckets, parameters), BucketLimits::kNever);
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    for (std::size_t member = 0; member < buckets[bucket].members.size(); ++member) {
      take_unplanned(parameters[buckets[bucket].members[member]], once.place(bucket, member), once.flags(bucket),
                     member);
    }
    once.flags(bucket).failed() = report.failure.empty() ? 0 : 1;
    once.start_next(weight.weight);
  }
  once.finish();
  agree_on_outcome(once);
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    for (std::size_t member = 0; member < buckets[bucket].members.size(); ++member) {
      if (once.flags(bucket).used(member) <= 0) continue;
      parameters[buckets[bucket].members[member]].tensor.mutable_grad() = once.place(bucket, member);
    }
  }
}

// In a group of one that sends nothing.
void GradientSynchronizer::State::look_at_unplanned(detail::ModuleParameter& parameter) {
  auto& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) return;
  if (weight.weight == 0) {
    gradient.zero_();
  } else if (options.non_finite != NonFinite::unchecked && !detail::is_finite(gradient)) {
    unplanned_non_finite = true;
    report.non_finite.push_back(parameter.name);
  }
}

void GradientSynchronizer::State::take_unplanned(const detail::ModuleParameter& parameter, const at::Tensor& place,
                                                 detail::BucketFlags& flags, std::size_t member) {
  const auto& gradient = parameter.tensor.grad();
  if (!gradient.defined()) {
    if (!is_expected(parameter)) return;
    flags.missing(member) = 1;
    report.missing.push_back(parameter.name);
    return;
  }
  if (auto problem = problem_of(parameter, place); !problem.empty()) {
    report.failure = std::move(problem);
    return;
  }
  flags.used(member) = joining ? 0 : 1;
  detail::copy_dense(gradient, place);
  if (options.non_finite == NonFinite::unchecked || weight.weight == 0 || detail::is_finite(gradient)) return;
  flags.non_finite() = 1;
  report.non_finite.push_back(parameter.name);
}

void GradientSynchronizer::State::add_hooks() {
  // A graph that outlives the synchronizer may still call the hooks.
  const auto state = self;
  parameters.hook({.before =
                       [state](std::size_t index) {
                         if (const auto alive = state.lock()) alive->before_gradient(index);
                       },
                   .after =
                       [state](std::size_t index, const at::Tensor& incoming) {
                         if (const auto alive = state.lock()) alive->on_gradient(index, incoming);
                       }});
}

BucketLimits GradientSynchronizer::State::tune() {
  const std::lock_guard lock(mutex);
  if (!options.plan.empty())
    throw UsageError("tune() was called, but the plan was given: leave SynchronizerOptions::plan empty.");
  if (rounds == 0 || in_window) {
    throw UsageError("tune() needs to know when gradients become ready: call it between two rounds, after the first.");
  }
  const CallPurpose purpose{communicator, "tune()"};
  const auto link = detail::measure_link(communicator);
  auto order = parameters.trainable();
  std::stable_sort(order.begin(), order.end(), [this](std::size_t left, std::size_t right) {
    return parameters[left].ready_s < parameters[right].ready_s;
  });
  std::vector<double> ready_s;
  for (const auto index : order) ready_s.push_back(parameters[index].ready_s);
  const auto mine = choose_limits(specs_of(order, parameters), ready_s, link, limits.alone_bytes);
  // Rank 0's are everyone's: times differ between ranks.
  std::istringstream chosen{communicator.broadcast_bytes(
      text(mine.bucket_bytes, " ", mine.first_bucket_bytes, " ", libtrain::join(order, " ")), 0)};
  chosen >> limits.bucket_bytes >> limits.first_bucket_bytes;
  for (auto& index : order) chosen >> index;
  next_plan = plan_of(order);
  has_replanned = true;
  return limits;
}

}  // namespace libtrain
