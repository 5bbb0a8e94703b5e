#include <libtrain/sync/sharded_optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>
#include <libtrain/numeric/detail/norm.hpp>
#include <libtrain/optim/detail/dense_update.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/sync/detail/sharding/sharded_optimizer_state.hpp>
#include <libtrain/sync/detail/sharding/update_rule.hpp>

namespace libtrain {

using detail::ShardedBucket;

namespace {

constexpr std::string_view kClipping = "ShardedOptimizer::clip_gradients()";

// Whether the gradient is in its place in a bucket.
bool is_in(const at::Tensor& place, const at::Tensor& gradient) {
  return gradient.numel() == 0 ||
         (gradient.const_data_ptr() == place.const_data_ptr() && gradient.strides() == place.strides());
}

double squares_of(const at::Tensor& gradients, const detail::OwnedRun& run) {
  if (run.count == 0) return 0;
  double squares = 0;
  optim::detail::with_element_type(gradients, [&]<typename T>(T) {
    squares = detail::sum_of_squares(gradients.const_data_ptr<T>() + run.begin, static_cast<std::size_t>(run.count),
                                     *detail::data_type_of(gradients.scalar_type()));
  });
  return squares;
}

}  // namespace

void ShardedOptimizer::State::require_averages() const {
  for (std::size_t index = 0; index < format->buckets().size(); ++index) {
    const auto& scattered = format->buckets()[index];
    const auto& view = scattered->view();
    bool any = false;
    for (std::size_t member = 0; member < view.names.size(); ++member) {
      const auto& parameter = parameters[buckets[index].members()[member].parameter];
      if (!parameter.has_gradient()) continue;
      any = true;
      if (is_in(view.gradients[member], parameter.tensor.grad())) continue;
      throw UsageError(
          text("The gradient of parameter '", parameter.name,
               "' was replaced by another tensor after wait(), but ShardedOptimizer reads averages from the "
               "synchronizer's memory. Change gradients in place, or reset them to undefined."));
    }
    if (!any) continue;
    if (!scattered->is_averaged()) {
      throw UsageError(text("ShardedOptimizer was called before the gradient of parameter '", view.names.front(),
                            "' was averaged. Call the synchronizer's wait() between backward() and step()."));
    }
    if (!scattered->is_untouched()) {
      throw UsageError(
          text("The gradients of parameters '", view.names.front(), "' to '", view.names.back(),
               "' were modified after wait(), for example by optim::clip_gradients, LossScaler or another "
               "backward(), but each rank holds the average of its own shard only. Call wait() after every "
               "backward(), and use clip_gradients() and unscale() of ShardedOptimizer."));
    }
  }
}

bool ShardedOptimizer::State::has_gradients(const ShardedBucket& bucket) const {
  return std::any_of(bucket.members().begin(), bucket.members().end(),
                     [this](const auto& member) { return parameters[member.parameter].has_gradient(); });
}

const at::Tensor& ShardedOptimizer::State::gradients_of(std::size_t bucket) const {
  const auto& planned = format->buckets();
  return bucket < planned.size() ? planned[bucket]->view().flat : buckets[bucket].own_gradients();
}

void ShardedOptimizer::State::update(std::size_t index) {
  const auto& bucket = buckets[index];
  if (!has_gradients(bucket)) return;
  const detail::ShardMemory memory{
      .parameters = bucket.parameters(), .gradients = gradients_of(index), .states = bucket.states()};
  // Consecutive parameters of equal rules and step counts are updated together.
  const Parameter* first = nullptr;
  std::vector<detail::OwnedRun> runs;
  const auto update_pending = [&] {
    if (first != nullptr) detail::update_runs(first->rule, learning_rate_factor, first->steps, memory, runs);
    runs.clear();
  };
  for (const auto& member : bucket.members()) {
    auto& parameter = parameters[member.parameter];
    if (!parameter.has_gradient()) continue;
    bucket.bind(member, parameter.tensor);  // loading a module replaces its memory
    ++parameter.steps;
    optim::detail::mark_changed(parameter.tensor);
    if (first != nullptr && (first->steps != parameter.steps || !(first->rule == parameter.rule))) {
      update_pending();
      first = nullptr;
    }
    if (first == nullptr) first = &parameter;
    for (const auto& run : bucket.layout().owned_in(member.offset, member.elements)) {
      if (run.count > 0) runs.push_back(run);
    }
  }
  update_pending();
  gathers.push_back(bucket.gather_parameters(format->communicator()));
}

void ShardedOptimizer::State::wait_for_parameters() {
  for (auto& gather : gathers) gather.wait();
  gathers.clear();
  format->set_gathering(false);
}

// Rank 0 counts the elements that all ranks have.
double ShardedOptimizer::State::own_squares() const {
  double squares = 0;
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    for (const auto& member : buckets[index].members()) {
      if (!parameters[member.parameter].has_gradient()) continue;
      const auto runs = buckets[index].layout().owned_in(member.offset, member.elements);
      squares += squares_of(gradients_of(index), runs[0]);
      if (format->communicator().rank() == 0) squares += squares_of(gradients_of(index), runs[1]);
    }
  }
  return squares;
}

bool ShardedOptimizer::State::is_on_device() const {
  return !format->communicator().device().is_cpu();
}

// As on the host, with the norm and the coefficient on the device: only the caller's number makes the host wait.
double ShardedOptimizer::State::clip_on_device(double max_norm) const {
  auto& communicator = format->communicator();
  std::vector<at::Tensor> counted;  // for the norm
  std::vector<at::Tensor> all;
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    if (!has_gradients(buckets[index])) continue;
    for (const auto& member : buckets[index].members()) {
      if (!parameters[member.parameter].has_gradient()) continue;
      const auto runs = buckets[index].layout().owned_in(member.offset, member.elements);
      for (std::size_t run = 0; run < runs.size(); ++run) {
        if (runs[run].count == 0) continue;
        all.push_back(gradients_of(index).narrow(0, runs[run].begin, runs[run].count));
        if (run == 0 || communicator.rank() == 0) counted.push_back(all.back());
      }
    }
  }
  std::vector<at::Tensor> norms;
  for (const auto type : {at::kFloat, at::kDouble}) {
    std::vector<at::Tensor> of_type;
    std::ranges::copy_if(counted, std::back_inserter(of_type),
                         [type](const at::Tensor& gradient) { return gradient.scalar_type() == type; });
    if (!of_type.empty()) norms.push_back(at::stack(at::_foreach_norm(of_type)).to(at::kDouble));
  }
  const auto squares = norms.empty() ? at::zeros({1}, at::TensorOptions(at::kDouble).device(communicator.device()))
                                     : at::cat(norms).square().sum(0, /*keepdim=*/true);
  const CallPurpose purpose{communicator, kClipping};
  communicator.all_reduce(squares).wait();
  const auto norm = squares.sqrt();
  if (!all.empty()) at::_foreach_mul_(all, norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1).squeeze());
  return norm.item<double>();
}

double ShardedOptimizer::State::sum_over_ranks(double value, std::string_view caller) const {
  const CallPurpose purpose{format->communicator(), caller};
  const auto sum = at::full({1}, value, at::kDouble);
  format->communicator().all_reduce(sum).wait();
  return sum.const_data_ptr<double>()[0];
}

// The part and the rest of every bucket, each as the gradient of a tensor that represents the parameters. The same
// tensors in every round of a layout, so that LossScaler recognises those that it has already divided.
std::vector<at::Tensor> ShardedOptimizer::State::gradient_shards() {
  shards.resize(2 * buckets.size());
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    const auto& bucket = buckets[index];
    const bool any = has_gradients(bucket);
    const auto runs = bucket.layout().owned_in(0, bucket.layout().elements());
    for (std::size_t run = 0; run < runs.size(); ++run) {
      auto& shard = shards[2 * index + run];
      if (!shard.defined()) shard = at::empty({0}, bucket.parameters().options());
      shard.mutable_grad() = any ? gradients_of(index).narrow(0, runs[run].begin, runs[run].count) : at::Tensor{};
    }
  }
  return shards;
}

ShardedOptimizer::ShardedOptimizer(torch::nn::Module& module, const ShardedRule& rule, ShardedOptimizerOptions options)
    : state_(std::make_unique<State>(module, rule, std::move(options))) {}

ShardedOptimizer::~ShardedOptimizer() = default;

std::shared_ptr<WireFormat> ShardedOptimizer::wire_format() const {
  return state_->format;
}

void ShardedOptimizer::step() {
  const at::NoGradGuard no_grad;
  state_->prepare();
  state_->require_averages();
  // The forward pass needs the first layers first, which are in the last buckets. While one is sent, the next is
  // updated.
  for (std::size_t left = state_->buckets.size(); left > 0; --left) state_->update(left - 1);
  if (state_->options.gather == ParameterGather::in_step) return state_->wait_for_parameters();
  state_->format->set_gathering(true);
}

void ShardedOptimizer::wait_for_parameters() {
  state_->wait_for_parameters();
}

double ShardedOptimizer::clip_gradients(double max_norm) {
  if (!(max_norm > 0)) {
    throw UsageError(text("clip_gradients() was given a max_norm of ", max_norm, "; it must be more than 0."));
  }
  const at::NoGradGuard no_grad;
  state_->prepare();
  state_->require_averages();
  if (state_->is_on_device()) return state_->clip_on_device(max_norm);
  const double norm = std::sqrt(state_->sum_over_ranks(state_->own_squares(), kClipping));
  const double coefficient = max_norm / (norm + 1e-6);
  if (coefficient >= 1) return norm;
  for (std::size_t index = 0; index < state_->buckets.size(); ++index) {
    const auto& bucket = state_->buckets[index];
    if (!state_->has_gradients(bucket)) continue;
    // Not what lies between the gradients, which nothing clears: 0 times NaN would stay there.
    for (const auto& member : bucket.members()) {
      if (!state_->parameters[member.parameter].has_gradient()) continue;
      for (const auto& run : bucket.layout().owned_in(member.offset, member.elements)) {
        if (run.count > 0) state_->gradients_of(index).narrow(0, run.begin, run.count).mul_(coefficient);
      }
    }
  }
  return norm;
}

bool ShardedOptimizer::unscale(optim::LossScaler& scaler) {
  const at::NoGradGuard no_grad;
  state_->prepare();
  state_->require_averages();
  const bool finite_here = scaler.unscale(state_->gradient_shards());
  if (state_->sum_over_ranks(finite_here ? 0 : 1, "ShardedOptimizer::unscale()") == 0) return true;
  scaler.report_overflow();
  return false;
}

void ShardedOptimizer::set_learning_rate(double rate) {
  optim::detail::require_not_negative(rate, "The learning rate");
  for (auto& parameter : state_->parameters) detail::set_learning_rate(parameter.rule, rate);
}

void ShardedOptimizer::set_learning_rate_factor(double factor) {
  optim::detail::require_not_negative(factor, "The factor of the learning rates");
  state_->learning_rate_factor = factor;
}

ShardedOptimizer::LearningRates ShardedOptimizer::learning_rates() const {
  LearningRates rates{.factor = state_->learning_rate_factor};
  for (const auto& parameter : state_->parameters) rates.of_parameters.push_back(detail::learning_rate(parameter.rule));
  return rates;
}

void ShardedOptimizer::set_learning_rates(const LearningRates& rates) {
  auto& parameters = state_->parameters;
  if (rates.of_parameters.size() != parameters.size()) {
    throw UsageError(text("ShardedOptimizer::set_learning_rates() was given the rates of ", rates.of_parameters.size(),
                          " parameters, but the module has ", parameters.size(), "."));
  }
  for (const double rate : rates.of_parameters) optim::detail::require_not_negative(rate, "The learning rate");
  set_learning_rate_factor(rates.factor);
  for (std::size_t index = 0; index < parameters.size(); ++index)
    detail::set_learning_rate(parameters[index].rule, rates.of_parameters[index]);
}

ShardedOptimizer::StateDict ShardedOptimizer::state_dict() {
  const at::NoGradGuard no_grad;
  const CallPurpose purpose{state_->format->communicator(), "ShardedOptimizer::state_dict()"};
  state_->wait_for_parameters();
  return state_->gather_state(std::vector<int>(state_->parameters.size(), 0));
}

ShardedOptimizer::StateDict ShardedOptimizer::shard_of_state_dict() {
  const at::NoGradGuard no_grad;
  const CallPurpose purpose{state_->format->communicator(), "ShardedOptimizer::shard_of_state_dict()"};
  state_->wait_for_parameters();
  return state_->gather_state(state_->evenly_over_ranks());
}

void ShardedOptimizer::load_state_dict(const StateDict& state) {
  const at::NoGradGuard no_grad;
  auto& communicator = state_->format->communicator();
  const CallPurpose purpose{communicator, "ShardedOptimizer::load_state_dict()"};
  state_->wait_for_parameters();
  const auto mine = communicator.rank() == 0 ? state_->misfit_of(state) : std::string{};
  const auto misfit = communicator.broadcast_bytes(mine, 0);
  if (!misfit.empty()) throw UsageError(misfit, ErrorScope::all_ranks);
  state_->take_state(state);
}

std::size_t ShardedOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto& bucket : state_->buckets) {
    for (const auto& state : bucket.states()) bytes += state.nbytes();
  }
  return bytes;
}

}  // namespace libtrain
