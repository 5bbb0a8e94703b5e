#include <libtrain/optim/lamb.hpp>

#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include <torch/optim/adamw.h>
#include <torch/optim/serialize.h>

#include <libtrain/numeric/detail/optimizer_steps.hpp>
#include <libtrain/optim/detail/dense_update.hpp>
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
  return detail::step_each<LambOptions>(*this, closure, "Lamb",
                                        [this](const at::Tensor& parameter, const at::Tensor& gradient,
                                               const LambOptions& options) { update(parameter, gradient, options); });
}

void Lamb::update(const at::Tensor& parameter, const at::Tensor& gradient, const LambOptions& options) {
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

void Lamb::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<State, LambOptions>(archive, *this);
}

void Lamb::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<State, LambOptions>(archive, *this);
}

}  // namespace libtrain::optim
