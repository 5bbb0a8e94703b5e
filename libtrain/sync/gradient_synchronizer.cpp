#include <libtrain/sync/gradient_synchronizer.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/broadcast.hpp>
#include <libtrain/sync/gradient_synchronizer_state.hpp>
#include <libtrain/sync/model_signature.hpp>

namespace libtrain {

GradientSynchronizer::State::State(torch::nn::Module& the_module, Communicator& the_communicator,
                                   SynchronizerOptions the_options)
    : module(the_module),
      communicator(the_communicator),
      options(std::move(the_options)),
      limits(options.buckets),
      parameters(the_module),
      reducer(the_communicator, options.wire_format, options.trace),
      buffers(the_module.buffers(), the_communicator),
      weights(the_communicator) {
  for (const auto& layer : module.modules(false)) {
    if (auto batch_norm = std::dynamic_pointer_cast<SyncBatchNormImpl>(layer)) batch_norms.push_back(batch_norm);
  }
  check_trainable();
  check_given_plan();
  adopt(plan_of(parameters.trainable()));
  reset_round();
}

GradientSynchronizer::GradientSynchronizer(torch::nn::Module& module, Communicator& communicator,
                                           SynchronizerOptions options) {
  require_same_model(module, communicator);
  state_ = std::make_shared<State>(module, communicator, std::move(options));
  state_->self = state_;
  state_->require_same_plan();
  broadcast_tensors(module.parameters(), communicator);
  broadcast_buffers();
  state_->add_hooks(state_);
}

GradientSynchronizer::~GradientSynchronizer() = default;

bool GradientSynchronizer::wait() {
  return state_->wait();
}

void GradientSynchronizer::zero_grad() {
  const std::lock_guard lock(state_->mutex);
  if (state_->in_round) {
    state_->fail_round(
        "zero_grad() was called between backward() and wait(): call wait() first, then step, then zero_grad().");
  }
  for (auto& parameter : state_->parameters) {
    parameter.accumulated = false;
    parameter.tensor.mutable_grad().reset();
  }
  state_->in_window = false;
  state_->adopt_next_plan();
}

GradientSynchronizer::NoSync GradientSynchronizer::no_sync() {
  const std::lock_guard lock(state_->mutex);
  if (state_->in_round) {
    state_->fail_round(
        "no_sync() was called between backward() and wait(): call wait() first, or take the guard before "
        "the round's first backward().");
  }
  ++state_->no_sync_guards;
  return NoSync{state_};
}

GradientSynchronizer::NoSync::~NoSync() {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  --state_->no_sync_guards;
}

std::int64_t GradientSynchronizer::set_samples(std::int64_t samples) {
  const std::lock_guard lock(state_->mutex);
  if (samples < 0) throw UsageError(text("set_samples() was given ", samples, ": a rank has 0 samples or more."));
  if (state_->in_round) {
    state_->fail_round(
        "set_samples() was called between backward() and wait(): call it before the round's backward().");
  }
  state_->weigh_round(state_->weights.exchange(samples));
  return state_->weight.total;
}

bool GradientSynchronizer::join() {
  const auto samples = set_samples(0);
  const std::lock_guard lock(state_->mutex);
  if (samples == 0) {
    state_->weigh_round({});
    return false;
  }
  if (!state_->in_window) state_->open_window();
  state_->joining = true;
  state_->finish_round();
  return true;
}

void GradientSynchronizer::find_unused(const std::vector<at::Tensor>& outputs) {
  const std::lock_guard lock(state_->mutex);
  state_->require_unused_allowed("find_unused()");
  if (state_->no_sync_guards > 0) return;
  if (!state_->in_window) state_->open_window();
  const auto nodes = detail::graph_behind(outputs);
  for (std::size_t index = 0; index < state_->parameters.size(); ++index) {
    auto& parameter = state_->parameters[index];
    if (!parameter.planned || parameter.excused || parameter.declared) continue;
    if (state_->parameters.accumulates_in(index, nodes)) continue;
    parameter.excused = true;
    --state_->missing[parameter.bucket];
  }
}

void GradientSynchronizer::declare_unused(const std::vector<std::string>& names) {
  const std::lock_guard lock(state_->mutex);
  state_->require_unused_allowed("declare_unused()");
  if (state_->in_window)
    throw UsageError("declare_unused() was called inside a round: call it between wait() and backward().");
  std::vector<std::size_t> indices;
  for (const auto& name : names) indices.push_back(state_->parameters.index_of(name));
  for (auto& parameter : state_->parameters) parameter.declared = false;
  for (const auto index : indices) state_->parameters[index].declared = true;
  state_->count_missing();
}

void GradientSynchronizer::broadcast_buffers() {
  state_->buffers.broadcast(0);
}

BucketLimits GradientSynchronizer::tune() {
  return state_->tune();
}

const std::vector<Bucket>& GradientSynchronizer::buckets() const {
  return state_->plan;
}

std::vector<std::string> GradientSynchronizer::parameter_names() const {
  std::vector<std::string> names;
  for (const auto& parameter : state_->parameters) names.push_back(parameter.name);
  return names;
}

std::int64_t GradientSynchronizer::rounds() const {
  return state_->rounds;
}

SynchronizationStatistics GradientSynchronizer::statistics() const {
  SynchronizationStatistics statistics{.rounds = state_->rounds, .seconds_waiting = state_->seconds_waiting};
  state_->reducer.add_to(statistics);
  return statistics;
}

}  // namespace libtrain
