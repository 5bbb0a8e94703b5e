#include <libtrain/optim/loss_scaler.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/optim/detail/unscale.hpp>
#include <libtrain/optim/device_optimizer.hpp>
#include <libtrain/optim/gradient_clipping.hpp>

namespace libtrain::optim {

namespace {

// Gradients are divided in float32: neither a scale nor its inverse may overflow there.
bool is_scale(double value) {
  return value >= std::numeric_limits<float>::min() && value <= std::numeric_limits<float>::max();
}

double rounded(double scale) {
  return static_cast<double>(static_cast<float>(scale));
}

void require(bool right, std::string_view name, double value, std::string_view expected) {
  if (!right) throw UsageError(text(name, " is ", value, "; it must be ", expected, "."));
}

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

void require_gradients(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) {
    if (parameter.defined() && parameter.grad().defined()) return;
  }
  throw UsageError(text("LossScaler was given ", parameters.size(),
                        " parameters, none of which has a gradient. Call it after backward() and wait(), and if wait() "
                        "returned false (NonFinite::skipped), call report_overflow() first."));
}

// LibTorch counts steps in int32.
constexpr std::int64_t kLargestCount = std::numeric_limits<int>::max();

// Whether all gradients that were checked are finite. Waits for none; checks on several devices meet on the first.
FiniteCheck all_of(const std::vector<FiniteCheck>& checks) {
  bool finite_on_host = true;
  at::Tensor found_inf;
  for (const auto& check : checks) {
    if (!check.is_on_device()) {
      finite_on_host = finite_on_host && check;
    } else if (!found_inf.defined()) {
      found_inf = check.found_inf();
    } else {
      found_inf = at::maximum(found_inf, check.found_inf().to(found_inf.device(), /*non_blocking=*/true));
    }
  }
  if (!found_inf.defined()) return finite_on_host;
  return FiniteCheck{finite_on_host ? found_inf : at::ones_like(found_inf)};
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options) : options_(options) {
  require(is_scale(options.initial_scale), "LossScalerOptions::initial_scale", options.initial_scale,
          "a positive number that float32 can hold");
  require(options.growth_factor >= 1 && std::isfinite(options.growth_factor), "LossScalerOptions::growth_factor",
          options.growth_factor, "a finite number, 1 or more");
  require(options.backoff_factor > 0 && options.backoff_factor <= 1, "LossScalerOptions::backoff_factor",
          options.backoff_factor, "more than 0 and at most 1");
  require(options.growth_interval >= 1, "LossScalerOptions::growth_interval",
          static_cast<double>(options.growth_interval), "1 or more");
  require(is_scale(options.minimum_scale) && options.minimum_scale <= options.initial_scale,
          "LossScalerOptions::minimum_scale", options.minimum_scale, "positive and at most initial_scale");
  state_.scale = rounded(options.initial_scale);
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const {
  if (!loss.defined() || !loss.is_floating_point()) {
    throw UsageError(text("The loss ", loss.defined() ? text("is of dtype ", loss.scalar_type()) : text("is undefined"),
                          "; it must be a tensor of a floating dtype."));
  }
  // The largest float16 is 65504, below the usual scale.
  const auto wide = c10::isReducedFloatingType(loss.scalar_type()) ? loss.to(at::kFloat) : loss;
  if (!on_device_.scale.defined()) return wide.mul(at::Scalar(state_.scale));
  return wide.mul(on_device_.scale.to(wide.device(), /*non_blocking=*/!wide.is_cpu()));
}

FiniteCheck LossScaler::unscale(const torch::optim::Optimizer& optimizer) {
  return unscale(parameters_of(optimizer));
}

FiniteCheck LossScaler::unscale(const std::vector<at::Tensor>& parameters) {
  if (reported_) return false;
  require_first_time(parameters);
  require_gradients(parameters);
  return divide(parameters);
}

FiniteCheck LossScaler::unscale(const std::vector<at::Tensor>& parameters, Communicator& communicator) {
  const at::NoGradGuard no_grad;
  if (!reported_) require_first_time(parameters);
  const auto check = reported_ ? FiniteCheck{false} : divide(parameters);
  // On the same kind of device on all ranks, also where a rank has reported an overflow and knows the answer.
  const auto device = parameters.empty() ? at::Device(at::kCPU) : parameters.front().device();
  const auto found_inf = check.is_on_device()
                             ? check.found_inf()
                             : at::full({}, check ? 0 : 1, at::TensorOptions(at::kFloat).device(device));
  communicator.all_reduce(found_inf, ReduceOp::sum).wait();
  found_inf.clamp_max_(1);  // a sum and not a maximum, which takes two collectives on a GPU
  const auto combined = device.is_cpu() ? FiniteCheck{found_inf.item<float>() == 0} : FiniteCheck{found_inf};
  if (!reported_) checks_.back() = combined;
  return combined;
}

void LossScaler::report_overflow() {
  reported_ = true;
}

FiniteCheck LossScaler::step(torch::optim::Optimizer& optimizer) {
  if (std::find(stepped_.begin(), stepped_.end(), &optimizer) != stepped_.end()) {
    throw UsageError("LossScaler::step was called twice for one optimizer. Call update() after each step.");
  }
  auto check = reported_ ? FiniteCheck{false} : check_of(parameters_of(optimizer));
  auto* const on_device = dynamic_cast<DeviceOptimizer*>(&optimizer);
  if (check.is_on_device() && on_device != nullptr) {
    on_device->step_unless(check.found_inf());
  } else {
    check = FiniteCheck{static_cast<bool>(check)};
    if (check) optimizer.step();
  }
  stepped_.push_back(&optimizer);
  return check;
}

void LossScaler::update() {
  if (!reported_ && checks_.empty()) {
    throw UsageError("LossScaler::update was called without a step. Call step() for each optimizer first.");
  }
  const at::NoGradGuard no_grad;
  const auto check = reported_ ? FiniteCheck{false} : all_of(checks_);
  checks_.clear();
  unscaled_.clear();
  stepped_.clear();
  reported_ = false;
  if (check.is_on_device()) move_to(check.found_inf().device());
  if (on_device_.scale.defined()) {
    update_on_device(check.found_inf().to(on_device_.scale.device(), /*non_blocking=*/true));
    return;
  }
  if (!check) {
    const double lower = rounded(std::max(state_.scale * options_.backoff_factor, options_.minimum_scale));
    state_ = {.scale = lower, .finite_steps = 0, .overflows = state_.overflows + 1};
    return;
  }
  state_.overflows = 0;
  if (++state_.finite_steps < options_.growth_interval) return;
  state_.finite_steps = 0;
  const double higher = state_.scale * options_.growth_factor;
  if (is_scale(higher)) state_.scale = rounded(higher);
}

LossScalerState LossScaler::state() const {
  if (!on_device_.scale.defined()) return state_;
  const auto numbers = at::stack({on_device_.scale.to(at::kDouble), on_device_.finite_steps.to(at::kDouble),
                                  on_device_.overflows.to(at::kDouble)})
                           .to(at::kCPU);
  const auto* const values = numbers.const_data_ptr<double>();
  return {.scale = values[0],
          .finite_steps = static_cast<std::int64_t>(values[1]),
          .overflows = static_cast<std::int64_t>(values[2])};
}

void LossScaler::load_state(const LossScalerState& state) {
  require(is_scale(state.scale), "LossScalerState::scale", state.scale, "a positive number that float32 can hold");
  require(state.finite_steps >= 0, "LossScalerState::finite_steps", static_cast<double>(state.finite_steps),
          "0 or more");
  require(state.overflows >= 0, "LossScalerState::overflows", static_cast<double>(state.overflows), "0 or more");
  state_ = state;
  state_.scale = rounded(state.scale);
  if (on_device_.scale.defined()) fill();
  checks_.clear();
  unscaled_.clear();
  stepped_.clear();
  reported_ = false;
}

void LossScaler::require_first_time(const std::vector<at::Tensor>& parameters) const {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    if (unscaled_.count(parameters[index].unsafeGetTensorImpl()) == 0) continue;
    throw UsageError(text("LossScaler::unscale would divide the gradient of parameter ", index, " of ",
                          parameters.size(), ", of shape ", parameters[index].sizes(),
                          ", a second time. Call update() once in each step, after all optimizers have stepped."));
  }
}

// The check of an optimizer's gradients, of which some may have been unscaled by hand.
FiniteCheck LossScaler::check_of(const std::vector<at::Tensor>& parameters) {
  require_gradients(parameters);
  std::vector<at::Tensor> rest;
  std::set<std::size_t> known;
  for (const auto& parameter : parameters) {
    const auto found = unscaled_.find(parameter.unsafeGetTensorImpl());
    if (found == unscaled_.end()) {
      rest.push_back(parameter);
    } else {
      known.insert(found->second);
    }
  }
  std::vector<FiniteCheck> checks;
  for (const auto index : known) checks.push_back(checks_[index]);
  if (!rest.empty()) checks.push_back(divide(rest));
  return all_of(checks);
}

FiniteCheck LossScaler::divide(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  const auto groups = detail::group_gradients(parameters);
  if (options_.float16_gradients == Float16Gradients::refused) {
    for (const auto& group : groups) {
      if (group.front().scalar_type() != at::kHalf) continue;
      throw UsageError(text("LossScaler found ", group.size(),
                            " gradients of float16, which underflow when they are divided by the scale. Keep the "
                            "parameters in float32 and run the forward pass under autocast, or set "
                            "LossScalerOptions::float16_gradients."));
    }
  }
  std::vector<FiniteCheck> checks;
  for (const auto& group : groups) {
    const auto device = group.front().device();
    const auto found_inf = at::zeros({}, at::TensorOptions(at::kFloat).device(device));
    detail::unscale(group, found_inf, inverse_on(device));
    checks.push_back(device.is_cpu() ? FiniteCheck{found_inf.item<float>() == 0} : FiniteCheck{found_inf});
  }
  for (const auto& parameter : parameters) unscaled_.emplace(parameter.unsafeGetTensorImpl(), checks_.size());
  return checks_.emplace_back(all_of(checks));
}

at::Tensor LossScaler::inverse_on(const at::Device& device) const {
  if (on_device_.scale.defined()) return on_device_.scale.reciprocal().to(device, /*non_blocking=*/!device.is_cpu());
  return at::full({}, 1 / state_.scale, at::TensorOptions(at::kFloat).device(device));
}

void LossScaler::move_to(const at::Device& device) {
  if (on_device_.scale.defined()) return;
  const auto number = at::TensorOptions(at::kFloat).device(device);
  on_device_ = {at::empty({}, number), at::empty({}, number.dtype(at::kInt)), at::empty({}, number)};
  fill();
}

void LossScaler::fill() {
  // LibTorch's operator lets the scale grow when the count is equal to the interval.
  const auto below_interval = std::min(options_.growth_interval - 1, kLargestCount - 1);
  on_device_.scale.fill_(state_.scale);
  on_device_.finite_steps.fill_(std::min(state_.finite_steps, below_interval));
  on_device_.overflows.fill_(state_.overflows);
}

void LossScaler::update_on_device(const at::Tensor& found_inf) {
  at::_amp_update_scale_(on_device_.scale, on_device_.finite_steps, found_inf, options_.growth_factor,
                         options_.backoff_factor, std::min(options_.growth_interval, kLargestCount));
  // Only an overflow lowers the scale, and a loaded one may be below the minimum.
  on_device_.scale.clamp_min_(found_inf.mul(options_.minimum_scale));
  on_device_.overflows.add_(1).mul_(found_inf);
}

}  // namespace libtrain::optim
