#include <libtrain/optim/lamb.hpp>

#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adamw.h>
#include <torch/optim/serialize.h>

#include <libtrain/numeric/detail/optimizer_steps.hpp>
#include <libtrain/optim/detail/dense_update.hpp>
#include <libtrain/optim/detail/device_update.hpp>
#include <libtrain/optim/detail/trust_ratio.hpp>

namespace libtrain::optim {

namespace {

using detail::Piece;
using State = torch::optim::AdamWParamState;

void check_beta(double beta, std::string_view name) {
  detail::require_not_negative(beta, name);
  if (beta >= 1) throw UsageError(text(name, " is ", beta, "; it must be below 1."));
}

void require_lamb_options(const LambOptions& options) {
  detail::require_not_negative(options.lr(), "LambOptions::lr");
  check_beta(std::get<0>(options.betas()), "The first of LambOptions::betas");
  check_beta(std::get<1>(options.betas()), "The second of LambOptions::betas");
  detail::require_not_negative(options.eps(), "LambOptions::eps");
  detail::require_not_negative(options.weight_decay(), "LambOptions::weight_decay");
}

bool is_skipped(const at::Tensor& parameter, const LambOptions& options) {
  return options.skip_one_dimensional() && parameter.dim() <= 1;
}

double trust_of(const std::vector<libtrain::detail::LambSums>& sums) {
  libtrain::detail::LambSums total;
  for (const auto& piece : sums) {
    total.parameter += piece.parameter;
    total.update += piece.update;
  }
  return detail::ratio_or_one(std::sqrt(total.parameter / total.update), total.parameter, total.update);
}

void update_flat(const at::Tensor& parameter, const at::Tensor& gradient, State& state,
                 const libtrain::detail::AdamWStep& step, bool skipped) {
  std::vector<libtrain::detail::LambSums> sums(detail::count_pieces(parameter));
  detail::with_element_type(parameter, [&]<typename T>(T) {
    auto* const values = parameter.mutable_data_ptr<T>();
    const auto* const gradients = gradient.const_data_ptr<T>();
    auto* const first = state.exp_avg().mutable_data_ptr<T>();
    auto* const second = state.exp_avg_sq().mutable_data_ptr<T>();
    detail::for_each_piece(parameter, [&](const Piece& piece) {
      const auto begin = piece.begin;
      sums[piece.index] = libtrain::detail::lamb_moments(values + begin, gradients + begin, first + begin,
                                                         second + begin, piece.count, step);
    });
    const auto trust = skipped ? 1.0 : trust_of(sums);
    detail::for_each_piece(parameter, [&](const Piece& piece) {
      const auto begin = piece.begin;
      libtrain::detail::lamb_update(values + begin, first + begin, second + begin, piece.count, step, trust);
    });
  });
  detail::mark_changed(parameter);
}

void update_any(const at::Tensor& parameter, const at::Tensor& gradient, State& state,
                const libtrain::detail::AdamWStep& step, bool skipped) {
  const auto number = static_cast<double>(step.step);
  const auto& first = state.exp_avg();
  const auto& second = state.exp_avg_sq();
  first.mul_(step.beta1).add_(gradient, 1 - step.beta1);
  second.mul_(step.beta2).addcmul_(gradient, gradient, 1 - step.beta2);
  const auto denominator = second.sqrt().div_(std::sqrt(1 - std::pow(step.beta2, number))).add_(step.epsilon);
  const auto update = first.div(1 - std::pow(step.beta1, number)).div_(denominator).add_(parameter, step.weight_decay);
  if (skipped) {
    parameter.sub_(update, step.learning_rate);
    return;
  }
  const auto weights = detail::norm_of(parameter);
  const auto length = detail::norm_of(update);
  const auto trust = detail::ratio_or_one(weights.div(length), weights, length);
  parameter.sub_(update.mul(trust.mul(step.learning_rate)));
}

}  // namespace

LambOptions::LambOptions(double lr) : lr_(lr) {}

void LambOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(skip_one_dimensional);
}

void LambOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Betas, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, skip_one_dimensional);
}

double LambOptions::get_lr() const {
  return lr();
}

void LambOptions::set_lr(const double lr) {
  lr_ = lr;
}

Lamb::Lamb(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LambOptions& defaults)
    : Optimizer(groups, std::make_unique<LambOptions>(defaults)) {
  require_lamb_options(defaults);
  for (const auto& group : param_groups_) require_lamb_options(detail::options_of<LambOptions>(group, "Lamb"));
}

Lamb::Lamb(std::vector<at::Tensor> parameters, const LambOptions& defaults)
    : Lamb(std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(std::move(parameters))},
           defaults) {}

at::Tensor Lamb::step(LossClosure closure) {
  const c10::NoGradGuard no_grad;
  auto loss = detail::evaluate(closure);
  detail::FoundInf never;
  update_all(never);
  return loss;
}

void Lamb::step_unless(const at::Tensor& found_inf) {
  const c10::NoGradGuard no_grad;
  detail::FoundInf given{found_inf};
  update_all(given);
}

void Lamb::update_all(detail::FoundInf& found_inf) {
  detail::update_each<LambOptions>(
      *this, found_inf, "Lamb",
      [this](const at::Tensor& parameter, const at::Tensor& gradient, const LambOptions& options) {
        update(parameter, gradient, options);
      },
      [&](const detail::DeviceList& list, const LambOptions& options, std::size_t group) {
        update_on_device(list, options, group, found_inf);
      });
}

void Lamb::update(const at::Tensor& parameter, const at::Tensor& gradient, const LambOptions& options) {
  detail::leave_device(state_[parameter.unsafeGetTensorImpl()]);
  auto& state = detail::state_of<State>(state_, parameter);
  detail::prepare_state(state.exp_avg(), parameter);
  detail::prepare_state(state.exp_avg_sq(), parameter);
  state.step(state.step() + 1);
  const bool skipped = is_skipped(parameter, options);
  auto step = detail::adamw_step(options, state.step());
  if (skipped) step.weight_decay = 0;
  if (detail::is_flat(parameter)) {
    update_flat(parameter, gradient, state, step, skipped);
  } else {
    update_any(parameter, gradient, state, step, skipped);
  }
}

void Lamb::update_on_device(const detail::DeviceList& list, const LambOptions& options, std::size_t group,
                            detail::FoundInf& found_inf) {
  detail::require_given_to_recording(rates_.is_recording());
  const auto flag = found_inf.on(list.device());
  const auto states = detail::adamw_states(state_, list, /*amsgrad=*/false, rates_.is_recording());
  const auto lists = detail::begin_adamw_step(states, /*amsgrad=*/false, flag);
  std::vector<bool> is_adapted;
  for (const auto& parameter : list.parameters) is_adapted.push_back(!is_skipped(parameter, options));
  // From 0, a step of AdamW at rate 1 gives -u without its weight decay.
  detail::ScaledTemporaries updates{list.values};
  at::_fused_adamw_(updates.tensors(), list.gradients, lists.first, lists.second, {}, lists.steps, /*lr=*/1.0,
                    std::get<0>(options.betas()), std::get<1>(options.betas()), /*weight_decay=*/0, options.eps(),
                    /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, flag);
  const auto rate = detail::rate_tensor(rates_, group, options.lr(), list);
  at::Tensor rates;
  const auto adapted = detail::select(list.values, is_adapted);
  if (!adapted.empty()) {
    const auto adapted_updates = detail::select(updates.tensors(), is_adapted);
    if (options.weight_decay() != 0) at::_foreach_add_(adapted_updates, adapted, -options.weight_decay());
    const auto weights = detail::norms_of(adapted);
    const auto lengths = detail::norms_of(adapted_updates);
    rates = detail::ratio_or_one(weights.div(lengths), weights, lengths).mul_(rate);
  }
  updates.scale(detail::factors_of(is_adapted, rates, rate));
  // w = w + update, which this kernel can skip.
  at::_fused_sgd_(list.values, updates.tensors(), {}, /*weight_decay=*/0, /*momentum=*/0, /*lr=*/1.0, /*dampening=*/0,
                  /*nesterov=*/false, /*maximize=*/true, /*is_first_step=*/false, /*grad_scale=*/{}, flag);
}

void Lamb::save(torch::serialize::OutputArchive& archive) const {
  detail::read_device_steps(state_);
  torch::optim::serialize<State, LambOptions>(archive, *this);
}

void Lamb::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<State, LambOptions>(archive, *this);
}

}  // namespace libtrain::optim
