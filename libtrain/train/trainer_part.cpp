#include <libtrain/train/trainer_part.hpp>

#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/base/trace.hpp>
#include <libtrain/optim/gradient_clipping.hpp>
#include <libtrain/sync/broadcast.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>
#include <libtrain/train/autocast.hpp>
#include <libtrain/train/checkpoint.hpp>

namespace libtrain {

namespace {

SynchronizerOptions with_format_of(const TrainerOptimizer& optimizer, SynchronizerOptions options) {
  const auto* const sharded = std::get_if<std::reference_wrapper<ShardedOptimizer>>(&optimizer);
  if (sharded == nullptr) return options;
  if (options.wire_format) {
    throw UsageError(
        "A Trainer with a ShardedOptimizer reduces gradients in that optimizer's own format. Leave "
        "TrainerOptions::synchronizer.wire_format empty.");
  }
  options.wire_format = sharded->get().wire_format();
  return options;
}

// Which may not be all of the module's.
std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  return parameters;
}

}  // namespace

TrainerPart::TrainerPart(std::string name, torch::nn::Module& module, TrainerOptimizer optimizer,
                         Communicator& communicator, const Options& options)
    : name_(std::move(name)),
      module_(module),
      optimizer_(optimizer),
      communicator_(communicator),
      options_(options),
      synchronizer_(module, communicator, with_format_of(optimizer, options.synchronizer)) {
  if (options.loss_scaler) scaler_.emplace(*options.loss_scaler);
  restart_average();
}

// From the module's values, which the program may have loaded since.
void TrainerPart::restart_average() {
  if (options_.moving_average) average_.emplace(module_, *options_.moving_average);
}

// The module's, and those of its average.
void TrainerPart::broadcast_buffers() {
  synchronizer_.broadcast_buffers();
  if (!average_) return;
  const auto buffers = module_.named_buffers();
  std::vector<at::Tensor> averages;
  for (const auto& [name, tensor] : average_->named_tensors())
    if (buffers.contains(name)) averages.push_back(tensor);
  broadcast_tensors(averages, communicator_);
}

void TrainerPart::begin_batch(const Batch& batch) {
  batch_ = batch;
  was_updated_ = false;
}

// Returns whether update() was called.
bool TrainerPart::end_batch() {
  batch_.reset();
  return was_updated_;
}

void TrainerPart::update(const at::Tensor& loss) {
  if (!batch_) throw UsageError("TrainerPart::update() was called outside of a trainer's step. Call it in the step.");
  if (was_updated_ && (!batch_->is_alone || batch_->uneven >= 0)) {
    throw UsageError(text("TrainerPart::update() of '", name_, "' was called twice in a step ",
                          batch_->is_alone
                              ? "in which ranks have different numbers of samples. Use Remainder::drop or "
                                "Remainder::pad."
                              : "of several batches. Call it once, or set TrainerOptions::accumulate to 1."));
  }
  was_updated_ = true;
  // Without the parameters of other modules, through which the gradients may pass.
  std::vector<at::Tensor> inputs;
  for (const auto& parameter : module_.parameters()) {
    if (parameter.requires_grad()) inputs.push_back(parameter);
  }
  const Autocast off{communicator_.device(), {.type = at::kFloat}};
  update_together(loss, {this}, *batch_, inputs);
  settle();
  at::autocast::clear_cache();  // casts of the weights before the step
}

// With empty `inputs`, the gradients of all parameters that the loss depends on.
void TrainerPart::update_together(const at::Tensor& loss, const std::vector<TrainerPart*>& parts, const Batch& batch,
                                  const std::vector<at::Tensor>& inputs) {
  backward(loss, parts, batch, inputs);
  if (!batch.is_last) return;
  auto* const scaler = parts.front()->scaler_ ? &*parts.front()->scaler_ : nullptr;  // that of the loss
  for (auto* const part : parts) {
    const bool has_gradients = part->synchronizer_.wait();
    part->has_skipped_ |= part->synchronizer_.skipped();
    const TraceSpan span{batch.trace, "compute", "step"};
    part->step(has_gradients, scaler);
  }
  if (scaler != nullptr) scaler->update();
  for (auto* const part : parts) part->synchronizer_.zero_grad();
}

void TrainerPart::backward(const at::Tensor& loss, const std::vector<TrainerPart*>& parts, const Batch& batch,
                           const std::vector<at::Tensor>& inputs) {
  if (!loss.defined() || loss.numel() != 1) {
    throw UsageError(text("A trainer's step has given a loss ",
                          loss.defined() ? text("of shape ", loss.sizes()) : std::string{"that is undefined"},
                          ". Give a scalar, such as the mean over the batch."));
  }
  if (!loss.requires_grad()) {
    throw UsageError(
        "A trainer's step has given a loss without a gradient. Compute it from the module's outputs, without detach() "
        "and outside of a NoGradGuard.");
  }
  std::vector<GradientSynchronizer::NoSync> guards;
  for (auto* const part : parts) {
    if (!std::exchange(part->is_in_round_, true) && batch.uneven >= 0) part->synchronizer_.set_samples(batch.uneven);
    if (!batch.is_last) guards.push_back(part->synchronizer_.no_sync());
  }
  for (auto* const norm : batch.batch_norms) norm->set_gradient_weight(static_cast<double>(batch.uneven));
  const TraceSpan span{batch.trace, "compute", "backward"};
  auto scaled = batch.divisor == 1 ? loss : loss / batch.divisor;
  if (const auto& scaler = parts.front()->scaler_) scaled = scaler->scale(scaled);
  torch::autograd::backward({scaled}, {}, std::nullopt, false, inputs);
  for (auto* const norm : batch.batch_norms) norm->set_gradient_weight(1);
}

// For a rank that has no samples in a step in which others have some.
void TrainerPart::step_without_samples() {
  if (!synchronizer_.join()) return;
  has_skipped_ = synchronizer_.skipped();
  step(!has_skipped_, scaler_ ? &*scaler_ : nullptr);
  if (scaler_) scaler_->update();
  synchronizer_.zero_grad();
}

void TrainerPart::step(bool has_gradients, optim::LossScaler* scaler) {
  is_in_round_ = false;
  const auto& max_norm = options_.max_gradient_norm;
  if (scaler != nullptr && !has_gradients) scaler->report_overflow();
  if (auto* const optimizer = plain_optimizer()) {
    if (max_norm && has_gradients) {
      if (scaler != nullptr) scaler->unscale(*optimizer);
      gradient_norm_ = optim::clip_gradients(parameters_of(*optimizer), {.max_norm = *max_norm});
    }
    if (scaler != nullptr) {
      scaler->step(*optimizer);
    } else {
      optimizer->step();
    }
  } else {
    auto& sharded = *sharded_optimizer();
    const bool is_finite = scaler == nullptr || sharded.unscale(*scaler);
    if (is_finite && has_gradients) {
      if (max_norm) gradient_norm_ = sharded.clip_gradients(*max_norm);
      sharded.step();
    }
  }
  if (!average_) return;
  settle();
  average_->update(module_);
}

// Before parameters are read.
void TrainerPart::settle() {
  if (auto* const sharded = sharded_optimizer()) sharded->wait_for_parameters();
}

// Null if the optimizer is sharded.
torch::optim::Optimizer* TrainerPart::plain_optimizer() const {
  const auto* const held = std::get_if<std::reference_wrapper<torch::optim::Optimizer>>(&optimizer_);
  return held != nullptr ? &held->get() : nullptr;
}

// Null if it is not.
ShardedOptimizer* TrainerPart::sharded_optimizer() const {
  const auto* const held = std::get_if<std::reference_wrapper<ShardedOptimizer>>(&optimizer_);
  return held != nullptr ? &held->get() : nullptr;
}

// Of all groups, or of all parameters of a sharded optimizer.
std::vector<double> TrainerPart::learning_rates() const {
  std::vector<double> rates;
  if (const auto* const optimizer = plain_optimizer()) {
    for (const auto& group : optimizer->param_groups()) rates.push_back(group.options().get_lr());
  } else {
    const auto [of_parameters, factor] = sharded_optimizer()->learning_rates();
    for (const auto rate : of_parameters) rates.push_back(rate * factor);
  }
  return rates;
}

// What a program can set: the rates of all groups, or those of a sharded optimizer's parameters and their factor.
std::vector<double> TrainerPart::rates() const {
  if (plain_optimizer() != nullptr) return learning_rates();
  auto [rates, factor] = sharded_optimizer()->learning_rates();
  rates.push_back(factor);
  return rates;
}

// Ignores rates of another number of groups or parameters.
void TrainerPart::set_rates(std::vector<double> rates) {
  if (rates.size() != this->rates().size()) return;
  if (auto* const optimizer = plain_optimizer()) {
    for (std::size_t group = 0; group < rates.size(); ++group)
      optimizer->param_groups()[group].options().set_lr(rates[group]);
  } else {
    const double factor = rates.back();
    rates.pop_back();
    sharded_optimizer()->set_learning_rates({.of_parameters = std::move(rates), .factor = factor});
  }
}

// Other optimizers follow an optim::LearningRate, which knows the rates of their groups.
void TrainerPart::set_rate_factor(double factor) {
  if (auto* const sharded = sharded_optimizer()) sharded->set_learning_rate_factor(factor);
}

void TrainerPart::add_to(Checkpoint& checkpoint) {
  checkpoint.add(name_, module_);
  if (auto* const optimizer = plain_optimizer()) {
    checkpoint.add(name_ + "-optimizer", *optimizer, module_);
  } else {
    checkpoint.add(name_ + "-optimizer", *sharded_optimizer());
  }
  if (average_) checkpoint.add(name_ + "-average", *average_);
  if (scaler_) checkpoint.add(name_ + "-scaler", *scaler_);
}

}  // namespace libtrain
