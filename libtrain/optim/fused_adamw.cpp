#include <libtrain/optim/fused_adamw.hpp>

#include <cmath>
#include <tuple>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/maximum.h>
#include <c10/core/GradMode.h>

#include <libtrain/numeric/detail/optimizer_steps.hpp>
#include <libtrain/optim/detail/dense_update.hpp>
#include <libtrain/optim/detail/device_update.hpp>

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
  const c10::NoGradGuard no_grad;
  auto loss = detail::evaluate(closure);
  detail::FoundInf never;
  update_all(never);
  return loss;
}

void FusedAdamW::step_unless(const at::Tensor& found_inf) {
  const c10::NoGradGuard no_grad;
  detail::FoundInf given{found_inf};
  update_all(given);
}

void FusedAdamW::save(torch::serialize::OutputArchive& archive) const {
  detail::read_device_steps(state_);
  AdamW::save(archive);
}

void FusedAdamW::update_all(detail::FoundInf& found_inf) {
  detail::update_each<torch::optim::AdamWOptions>(
      *this, found_inf, "FusedAdamW",
      [this](const at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::AdamWOptions& options) {
        update(parameter, gradient, options);
      },
      [&](const detail::DeviceList& list, const torch::optim::AdamWOptions& options, std::size_t group) {
        update_on_device(list, options, group, found_inf);
      });
}

void FusedAdamW::update(const at::Tensor& parameter, const at::Tensor& gradient,
                        const torch::optim::AdamWOptions& options) {
  detail::leave_device(state_[parameter.unsafeGetTensorImpl()]);
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

void FusedAdamW::update_on_device(const detail::DeviceList& list, const torch::optim::AdamWOptions& options,
                                  std::size_t group, detail::FoundInf& found_inf) {
  detail::require_given_to_recording(rates_.is_recording());
  const auto flag = found_inf.on(list.device());
  const auto states = detail::adamw_states(state_, list, options.amsgrad(), rates_.is_recording());
  const auto lists = detail::begin_adamw_step(states, options.amsgrad(), flag);
  const auto call = [&](const auto& rate) {
    at::_fused_adamw_(list.values, list.gradients, lists.first, lists.second, lists.largest_second, lists.steps, rate,
                      std::get<0>(options.betas()), std::get<1>(options.betas()), options.weight_decay(), options.eps(),
                      options.amsgrad(), /*maximize=*/false, /*grad_scale=*/{}, flag);
  };
  if (rates_.is_recording()) {
    call(rates_.of(group, list.device()));
  } else {
    call(options.lr());
  }
}

}  // namespace libtrain::optim
