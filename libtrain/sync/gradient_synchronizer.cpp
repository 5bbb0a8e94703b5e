#include <libtrain/sync/gradient_synchronizer.hpp>

#include <algorithm>
#include <atomic>
#include <functional>

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
  if (options.wire_format) limits.alone_bytes = BucketLimits::kNever;  // formats have memory of their own for a bucket
  for (const auto& layer : module.modules(false)) {
    if (auto batch_norm = std::dynamic_pointer_cast<SyncBatchNormImpl>(layer)) batch_norms.push_back(batch_norm);
  }
  check_trainable();
  check_given_plan();
  adopt(plan_of(parameters.trainable()));
  reset_round();
}

namespace {

// Counts this process's synchronizers; rank 0's count names them on all ranks.
std::atomic<std::uint64_t> count = 0;

// What is wrong on one rank ends all of them here, not at the next collective. Returns rank 0's number.
std::string agree_on_start(const std::string& problem, Communicator& communicator) {
  const auto all = communicator.all_gather_bytes(text(++count, " ", problem));
  std::vector<std::string> problems;
  for (const auto& said : all) problems.push_back(said.substr(said.find(' ') + 1));
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    const bool on_all = std::adjacent_find(problems.begin(), problems.end(), std::not_equal_to<>{}) == problems.end();
    throw UsageError(on_all ? problem : text("rank ", rank, ": ", problems[rank]), ErrorScope::all_ranks);
  }
  const auto number = all.front().substr(0, all.front().find(' '));
  return number == "1" ? "" : text(" of synchronizer ", number);
}

}  // namespace

GradientSynchronizer::GradientSynchronizer(ModuleRef held, Communicator& communicator, SynchronizerOptions options) {
  auto& module = *held;
  const CallPurpose purpose{communicator, "making a GradientSynchronizer"};
  // Gradients are laid out like their parameters, and averaged place by place.
  require_same_model(module, communicator, Layouts::compared);
  std::string problem;
  try {
    state_ = std::make_shared<State>(module, communicator, std::move(options));
    state_->self = state_;
    state_->add_hooks();
  } catch (const UsageError& error) {
    problem = error.what();
  }
  const auto owner = agree_on_start(problem, communicator);
  state_->reducer.set_owner(owner);
  state_->require_same_plan();
  broadcast_tensors(module.parameters(), communicator);
  broadcast_tensors(module.buffers(), communicator);
}

// A no_sync() guard may keep the state longer, and the module and the communicator may go after this.
GradientSynchronizer::~GradientSynchronizer() {
  const std::lock_guard lock(state_->mutex);
  state_->has_ended = true;
  state_->parameters.unhook();
  state_->reducer.clear();
}

bool GradientSynchronizer::wait() {
  return state_->wait();
}

void GradientSynchronizer::zero_grad() {
  const std::lock_guard lock(state_->mutex);
  if (state_->in_round) {
    state_->fail_round(
        "zero_grad() was called between backward() and wait(): call wait() first, then step, then zero_grad().",
        State::Failure::refused);
  }
  if (const auto* stepped = state_->in_window ? state_->parameters.first_stepped() : nullptr) {
    state_->fail_stepped(*stepped);
  }
  for (auto& parameter : state_->parameters) {
    parameter.accumulated = parameter.excused = false;
    parameter.tensor.mutable_grad().reset();
  }
  state_->in_window = false;
  state_->reducer.reset();
  state_->adopt_next_plan();
  state_->count_missing();
}

GradientSynchronizer::NoSync GradientSynchronizer::no_sync() {
  const std::lock_guard lock(state_->mutex);
  if (state_->in_round) {
    state_->fail_round(
        "no_sync() was called between backward() and wait(): call wait() first, or take the guard before "
        "the round's first backward().",
        State::Failure::refused);
  }
  ++state_->no_sync_guards;
  return NoSync{state_};
}

GradientSynchronizer::NoSync::~NoSync() {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  --state_->no_sync_guards;
  state_->reducer.expect_no_gradients();  // what comes next is a forward
}

std::int64_t GradientSynchronizer::set_samples(std::int64_t samples) {
  const std::lock_guard lock(state_->mutex);
  if (samples < 0) throw UsageError(text("set_samples() was given ", samples, ": a rank has 0 samples or more."));
  if (state_->in_round) {
    state_->fail_round("set_samples() was called between backward() and wait(): call it before the round's backward().",
                       State::Failure::refused);
  }
  if (state_->in_window && !state_->batch_norms.empty()) {
    throw UsageError(
        "set_samples() was called after a backward() under no_sync(), whose SyncBatchNorm has used other "
        "weights: call it before the window's first backward().");
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
  for (const auto& parameter : state_->parameters) {
    if (!parameter.accumulated || !parameter.has_gradient()) continue;
    state_->fail_round(
        "join() was called with gradients accumulated under no_sync(), which would be lost: end the round "
        "with one more backward() and wait(), or zero_grad().");
  }
  state_->joining = true;
  state_->finish_round();
  return true;
}

void GradientSynchronizer::find_unused(const std::vector<at::Tensor>& outputs) {
  const std::lock_guard lock(state_->mutex);
  state_->require_unused_allowed("find_unused()");
  if (state_->in_round) {
    state_->fail_round("find_unused() was called after a backward() of its round: call it before.",
                       State::Failure::refused);
  }
  if (state_->no_sync_guards > 0) return;
  if (!state_->in_window) state_->open_window();
  const auto nodes = detail::graph_behind(outputs);
  for (std::size_t index = 0; index < state_->parameters.size(); ++index) {
    auto& parameter = state_->parameters[index];
    parameter.excused = parameter.planned && !state_->parameters.accumulates_in(index, nodes);
  }
  state_->count_missing();
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
  const std::lock_guard lock(state_->mutex);
  if (state_->in_round) {
    state_->fail_round("broadcast_buffers() was called between backward() and wait(): call wait() first.",
                       State::Failure::refused);
  }
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

bool GradientSynchronizer::skipped() const {
  return state_->has_skipped;
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
