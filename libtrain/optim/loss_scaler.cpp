#include <libtrain/optim/loss_scaler.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
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
  return wide.mul(at::Scalar(state_.scale));
}

bool LossScaler::unscale(const torch::optim::Optimizer& optimizer) {
  return unscale(parameters_of(optimizer));
}

bool LossScaler::unscale(const std::vector<at::Tensor>& parameters) {
  if (reported_) return false;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    if (unscaled_.count(parameters[index].unsafeGetTensorImpl()) == 0) continue;
    throw UsageError(text("LossScaler::unscale would divide the gradient of parameter ", index, " of ",
                          parameters.size(), ", of shape ", parameters[index].sizes(),
                          ", a second time. Call update() once in each step, after all optimizers have stepped."));
  }
  require_gradients(parameters);
  return divide(parameters);
}

void LossScaler::report_overflow() {
  reported_ = true;
}

bool LossScaler::step(torch::optim::Optimizer& optimizer) {
  if (std::find(stepped_.begin(), stepped_.end(), &optimizer) != stepped_.end()) {
    throw UsageError("LossScaler::step was called twice for one optimizer. Call update() after each step.");
  }
  bool finite = !reported_;
  if (!reported_) {
    const auto parameters = parameters_of(optimizer);
    require_gradients(parameters);
    std::vector<at::Tensor> rest;
    for (const auto& parameter : parameters) {
      const auto known = unscaled_.find(parameter.unsafeGetTensorImpl());
      if (known == unscaled_.end()) {
        rest.push_back(parameter);
      } else {
        finite = finite && known->second;
      }
    }
    finite = divide(rest) && finite;
  }
  if (finite) optimizer.step();
  stepped_.push_back(&optimizer);
  return finite;
}

void LossScaler::update() {
  if (!reported_ && unscaled_.empty()) {
    throw UsageError("LossScaler::update was called without a step. Call step() for each optimizer first.");
  }
  const auto is_finite = [](const auto& entry) { return entry.second; };
  const bool overflow = reported_ || !std::all_of(unscaled_.begin(), unscaled_.end(), is_finite);
  unscaled_.clear();
  stepped_.clear();
  reported_ = false;
  if (overflow) {
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

void LossScaler::load_state(const LossScalerState& state) {
  require(is_scale(state.scale), "LossScalerState::scale", state.scale, "a positive number that float32 can hold");
  require(state.finite_steps >= 0, "LossScalerState::finite_steps", static_cast<double>(state.finite_steps),
          "0 or more");
  require(state.overflows >= 0, "LossScalerState::overflows", static_cast<double>(state.overflows), "0 or more");
  state_ = state;
  state_.scale = rounded(state.scale);
  unscaled_.clear();
  stepped_.clear();
  reported_ = false;
}

bool LossScaler::divide(const std::vector<at::Tensor>& parameters) {
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
  std::vector<at::Tensor> found;
  for (const auto& group : groups) {
    const auto options = at::TensorOptions(at::kFloat).device(group.front().device());
    found.push_back(at::zeros({}, options));
    const auto inverse = at::full({}, 1 / state_.scale, options);
    at::_amp_foreach_non_finite_check_and_unscale_(group, found.back(), inverse);
  }
  bool finite = true;
  for (const auto& flag : found) finite = finite && flag.item<float>() == 0;
  for (const auto& parameter : parameters) unscaled_.emplace(parameter.unsafeGetTensorImpl(), finite);
  return finite;
}

}  // namespace libtrain::optim
