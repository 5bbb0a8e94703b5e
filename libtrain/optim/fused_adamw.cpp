#include <libtrain/optim/fused_adamw.hpp>

#include <cmath>

#include <ATen/ops/maximum.h>

#include <libtrain/numeric/detail/optimizer_steps.hpp>
#include <libtrain/optim/detail/dense_update.hpp>

namespace libtrain::optim {

namespace {

void update_any(const at::Tensor& parameter, const at::Tensor& gradient, torch::optim::AdamWParamState& state,
                const libtrain::detail::AdamWStep& step, const at::Tensor& largest_second) {
  const auto number = static_cast<double>(step.step);
  const auto& first = state.exp_avg();
  const auto& second = state.exp_avg_sq();
  parameter.mul_(1 - step.learning_rate * step.weight_decay);
  first.mul_(step.beta1).add_(gradient, 1 - step.beta1);
  second.mul_(step.beta2).addcmul_(gradient, gradient, 1 - step.beta2);
  if (largest_second.defined()) largest_second.copy_(at::maximum(largest_second, second));
  const auto root = largest_second.defined() ? largest_second.sqrt() : second.sqrt();
  const auto denominator = root.div_(std::sqrt(1 - std::pow(step.beta2, number))).add_(step.epsilon);
  parameter.addcdiv_(first, denominator, -step.learning_rate / (1 - std::pow(step.beta1, number)));
}

}  // namespace

at::Tensor FusedAdamW::step(LossClosure closure) {
  return detail::step_each<torch::optim::AdamWOptions>(
      *this, closure, "FusedAdamW",
      [this](const at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::AdamWOptions& options) {
        update(parameter, gradient, options);
      });
}

void FusedAdamW::update(const at::Tensor& parameter, const at::Tensor& gradient,
                        const torch::optim::AdamWOptions& options) {
  auto& state = detail::state_of<torch::optim::AdamWParamState>(state_, parameter);
  detail::prepare_state(state.exp_avg(), parameter);
  detail::prepare_state(state.exp_avg_sq(), parameter);
  if (options.amsgrad()) detail::prepare_state(state.max_exp_avg_sq(), parameter);
  state.step(state.step() + 1);
  const auto step = detail::adamw_step(options, state.step());
  if (detail::is_flat(parameter) && !options.amsgrad()) {
    detail::adamw_pieces(parameter, gradient, state.exp_avg(), state.exp_avg_sq(), step);
    detail::mark_changed(parameter);
  } else {
    update_any(parameter, gradient, state, step, options.amsgrad() ? state.max_exp_avg_sq() : at::Tensor());
  }
}

}  // namespace libtrain::optim
