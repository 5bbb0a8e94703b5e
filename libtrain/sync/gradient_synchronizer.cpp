#include <libtrain/sync/gradient_synchronizer.hpp>

#include <algorithm>
#include <mutex>
#include <string>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/broadcast.hpp>
#include <libtrain/sync/gradient_bucket.hpp>
#include <libtrain/sync/model_signature.hpp>

namespace libtrain {

namespace {

using torch::autograd::variable_list;

// A trainable parameter and where its gradient goes.
struct Parameter {
  std::string name;
  at::Tensor tensor;
  std::size_t bucket = 0;
  std::size_t member = 0;
  bool arrived = false;
  // The accumulator is kept alive: it would otherwise be made anew, without the hook, for every backward().
  std::shared_ptr<torch::autograd::Node> accumulator;
  std::uintptr_t hook = 0;
};

struct BucketProgress {
  std::size_t missing = 0;
  Work work;
};

DataType gradient_type(const Parameter& parameter) {
  switch (parameter.tensor.scalar_type()) {
    case at::kFloat:
      return DataType::float32;
    case at::kDouble:
      return DataType::float64;
    case at::kHalf:
      return DataType::float16;
    case at::kBFloat16:
      return DataType::bfloat16;
    default:
      throw UsageError(text("Parameter '", parameter.name, "' is of dtype ", parameter.tensor.scalar_type(),
                            ", whose gradient cannot be averaged: use float32, float64, float16 or bfloat16."));
  }
}

}  // namespace

struct GradientSynchronizer::State {
  State(torch::nn::Module& module, Communicator& communicator, const SynchronizerOptions& options);

  void collect_parameters();
  void make_buckets(const SynchronizerOptions& options);
  void add_hooks(const std::shared_ptr<State>& self);
  void remove_hooks();

  void on_gradient(std::size_t index);
  void keep_in_place(Parameter& parameter);
  void reduce_full_buckets();
  void require_all_arrived() const;
  void start_round();

  torch::nn::Module& module;
  Communicator& communicator;
  std::vector<Parameter> parameters;  // in the order in which gradients are expected
  std::vector<Bucket> plan;
  std::vector<detail::GradientBucket> buckets;
  double seconds_waiting = 0;

  // Guards the round: hooks may run on several threads.
  std::mutex mutex;
  std::vector<BucketProgress> progress;
  std::size_t next_bucket = 0;  // buckets before it are reducing
  bool in_round = false;
};

GradientSynchronizer::State::State(torch::nn::Module& the_module, Communicator& the_communicator,
                                   const SynchronizerOptions& options)
    : module(the_module), communicator(the_communicator) {
  collect_parameters();
  make_buckets(options);
  start_round();
}

void GradientSynchronizer::State::collect_parameters() {
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const auto registered_twice = [&item](const Parameter& other) { return other.tensor.is_same(item.value()); };
    if (std::any_of(parameters.begin(), parameters.end(), registered_twice)) continue;
    if (!item.value().is_cpu()) {
      throw UsageError(text("Parameter '", item.key(), "' is on ", item.value().device(),
                            ", and this version synchronises gradients in host memory only: move the module to the "
                            "CPU."));
    }
    parameters.push_back({.name = item.key(), .tensor = item.value()});
  }
  if (parameters.empty()) {
    throw UsageError("The module has no parameter that requires a gradient, so there is nothing to synchronise.");
  }
  // backward() reaches the layers from the last to the first.
  std::reverse(parameters.begin(), parameters.end());
}

void GradientSynchronizer::State::make_buckets(const SynchronizerOptions& options) {
  std::vector<GradientSpec> specs;
  for (const auto& parameter : parameters) {
    specs.push_back({static_cast<std::size_t>(parameter.tensor.numel()), gradient_type(parameter)});
  }
  plan = plan_buckets(specs, options.buckets);
  for (std::size_t index = 0; index < plan.size(); ++index) {
    std::vector<at::Tensor> tensors;
    for (std::size_t member = 0; member < plan[index].members.size(); ++member) {
      auto& parameter = parameters[plan[index].members[member]];
      parameter.bucket = index;
      parameter.member = member;
      tensors.push_back(parameter.tensor);
    }
    buckets.emplace_back(plan[index], tensors, communicator);
  }
}

void GradientSynchronizer::State::add_hooks(const std::shared_ptr<State>& self) {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    auto& parameter = parameters[index];
    parameter.accumulator = torch::autograd::impl::grad_accumulator(parameter.tensor);
    // A graph that outlives this object may still call the hook.
    const auto hook = [weak = std::weak_ptr<State>(self), index](const variable_list& outputs, const variable_list&) {
      if (const auto state = weak.lock()) state->on_gradient(index);
      return outputs;
    };
    parameter.hook =
        parameter.accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(hook));
  }
}

void GradientSynchronizer::State::remove_hooks() {
  for (auto& parameter : parameters) parameter.accumulator->del_post_hook(parameter.hook);
}

void GradientSynchronizer::State::on_gradient(std::size_t index) {
  const std::lock_guard lock(mutex);
  auto& parameter = parameters[index];
  if (parameter.arrived) {
    throw UsageError(text("Parameter '", parameter.name,
                          "' received a second gradient before wait(): call wait() after every backward()."));
  }
  in_round = true;
  keep_in_place(parameter);
  parameter.arrived = true;
  --progress[parameter.bucket].missing;
  reduce_full_buckets();
}

// backward() adds to a gradient that is defined, in place; otherwise it leaves a tensor of its own making, which is
// copied to the bucket here.
void GradientSynchronizer::State::keep_in_place(Parameter& parameter) {
  const auto& place = buckets[parameter.bucket].gradient(parameter.member);
  auto& gradient = parameter.tensor.mutable_grad();
  if (gradient.is_same(place)) return;
  if (!gradient.defined()) {
    throw UsageError(text("backward() reached parameter '", parameter.name,
                          "' without a gradient for it: a custom function returned an undefined tensor."));
  }
  if (gradient.requires_grad()) {
    throw UsageError(text("The gradient of parameter '", parameter.name,
                          "' itself requires a gradient: backward() with create_graph cannot be synchronised."));
  }
  if (gradient.layout() != at::kStrided) {
    throw UsageError(text("The gradient of parameter '", parameter.name,
                          "' is sparse, which buckets cannot hold: ", "make the embedding with sparse(false)."));
  }
  const at::NoGradGuard no_grad;
  place.copy_(gradient);
  gradient = place;
}

void GradientSynchronizer::State::reduce_full_buckets() {
  while (next_bucket < buckets.size() && progress[next_bucket].missing == 0) {
    progress[next_bucket].work = communicator.all_reduce(buckets[next_bucket].flat(), ReduceOp::average);
    ++next_bucket;
  }
}

void GradientSynchronizer::State::require_all_arrived() const {
  if (next_bucket == buckets.size()) return;
  if (!in_round) throw UsageError("wait() was called without a backward() before it.");
  std::vector<std::string> missing;
  for (const auto& parameter : parameters) {
    if (!parameter.arrived) missing.push_back("'" + parameter.name + "'");
  }
  throw UsageError(text("backward() gave no gradient to ", missing.size(), " of ", parameters.size(),
                        " parameters: ", join(missing, ", "),
                        ". Use every parameter in the loss, or freeze it with set_requires_grad(false) before the "
                        "synchronizer is made."));
}

void GradientSynchronizer::State::start_round() {
  progress.clear();
  for (const auto& bucket : plan) progress.push_back({.missing = bucket.members.size()});
  for (auto& parameter : parameters) parameter.arrived = false;
  next_bucket = 0;
  in_round = false;
}

GradientSynchronizer::GradientSynchronizer(torch::nn::Module& module, Communicator& communicator,
                                           SynchronizerOptions options) {
  require_same_model(module, communicator);
  state_ = std::make_shared<State>(module, communicator, options);
  broadcast_tensors(module.parameters(), communicator);
  broadcast_buffers();
  state_->add_hooks(state_);
}

GradientSynchronizer::~GradientSynchronizer() {
  state_->remove_hooks();
}

void GradientSynchronizer::wait() {
  const std::lock_guard lock(state_->mutex);
  state_->require_all_arrived();
  const Stopwatch stopwatch;
  for (auto& bucket : state_->progress) bucket.work.wait();
  state_->seconds_waiting += stopwatch.seconds();
  state_->start_round();
}

void GradientSynchronizer::zero_grad() {
  const std::lock_guard lock(state_->mutex);
  if (state_->in_round) {
    throw UsageError(
        "zero_grad() was called between backward() and wait(): call wait() first, then step, then zero_grad().");
  }
  for (auto& parameter : state_->parameters) parameter.tensor.mutable_grad().reset();
}

void GradientSynchronizer::broadcast_buffers() {
  broadcast_tensors(state_->module.buffers(), state_->communicator);
}

const std::vector<Bucket>& GradientSynchronizer::buckets() const {
  return state_->plan;
}

double GradientSynchronizer::seconds_waiting() const {
  return state_->seconds_waiting;
}

}  // namespace libtrain
