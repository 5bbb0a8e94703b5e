#include <libtrain/optim/fused_adamw.hpp>

#include <cmath>
#include <tuple>

#include <ATen/ops/maximum.h>

#include <libtrain/numeric/detail/optimizer_steps.hpp>
#include <libtrain/optim/detail/dense_update.hpp>

namespace libtrain::optim {

namespace {

using detail::Piece;

void update_flat(const at::Tensor& parameter, const at::Tensor& gradient, torch::optim::AdamWParamState& state,
                 const libtrain::detail::AdamWStep& step) {
  detail::with_element_type(parameter, [&]<typename T>(T) {
    auto* const values = parameter.mutable_data_ptr<T>();
    const auto* const gradients = gradient.const_data_ptr<T>();
    auto* const first = state.exp_avg().mutable_data_ptr<T>();
    auto* const second = state.exp_avg_sq().mutable_data_ptr<T>();
    detail::for_each_piece(parameter, [&](const Piece& piece) {
      const auto begin = piece.begin;
      libtrain::detail::adamw_update(values + begin, gradients + begin, first + begin, second + begin, piece.count,
                                     step);
    });
  });
  detail::mark_changed(parameter);
}

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
  const libtrain::detail::AdamWStep step{.learning_rate = options.lr(),
                                         .beta1 = std::get<0>(options.betas()),
                                         .beta2 = std::get<1>(options.betas()),
                                         .epsilon = options.eps(),
                                         .weight_decay = options.weight_decay(),
                                         .step = state.step()};
  if (detail::is_flat(parameter) && !options.amsgrad()) {
    update_flat(parameter, gradient, state, step);
  } else {
    update_any(parameter, gradient, state, step, options.amsgrad() ? state.max_exp_avg_sq() : at::Tensor());
  }
}

}  // namespace libtrain::optim
