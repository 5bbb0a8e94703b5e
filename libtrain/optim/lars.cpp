#include <libtrain/optim/lars.hpp>

#include <memory>
#include <utility>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_fused_sgd.h>
#include <c10/core/GradMode.h>
#include <torch/optim/serialize.h>
#include <torch/optim/sgd.h>

#include <libtrain/numeric/detail/optimizer_steps.hpp>
#include <libtrain/optim/detail/dense_update.hpp>
#include <libtrain/optim/detail/device_update.hpp>
#include <libtrain/optim/detail/trust_ratio.hpp>

namespace libtrain::optim {

namespace {

using detail::Piece;

void require_lars_options(const LarsOptions& options) {
  detail::require_not_negative(options.lr(), "LarsOptions::lr");
  detail::require_not_negative(options.momentum(), "LarsOptions::momentum");
  detail::require_not_negative(options.weight_decay(), "LarsOptions::weight_decay");
  detail::require_not_negative(options.trust_coefficient(), "LarsOptions::trust_coefficient");
  detail::require_not_negative(options.eps(), "LarsOptions::eps");
}

bool is_skipped(const at::Tensor& parameter, const LarsOptions& options) {
  return options.skip_one_dimensional() && parameter.dim() <= 1;
}

double flat_trust(const at::Tensor& parameter, const at::Tensor& gradient, const LarsOptions& options) {
  if (is_skipped(parameter, options)) return 1;
  const auto weights = detail::norm_of_flat(parameter);
  const auto gradients = detail::norm_of_flat(gradient);
  const auto ratio =
      options.trust_coefficient() * weights / (gradients + options.weight_decay() * weights + options.eps());
  return detail::ratio_or_one(ratio, weights, gradients);
}

void update_flat(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& velocity,
                 const LarsOptions& options) {
  const libtrain::detail::LarsStep step{.rate = options.lr() * flat_trust(parameter, gradient, options),
                                        .momentum = options.momentum(),
                                        .weight_decay = is_skipped(parameter, options) ? 0 : options.weight_decay()};
  detail::with_element_type(parameter, [&]<typename T>(T) {
    auto* const values = parameter.mutable_data_ptr<T>();
    const auto* const gradients = gradient.const_data_ptr<T>();
    auto* const kept = velocity.defined() ? velocity.mutable_data_ptr<T>() : nullptr;
    detail::for_each_piece(parameter, [&](const Piece& piece) {
      const auto begin = piece.begin;
      libtrain::detail::lars_update(values + begin, gradients + begin, kept == nullptr ? nullptr : kept + begin,
                                    piece.count, step);
    });
  });
  detail::mark_changed(parameter);
}

at::Tensor adapted(const at::Tensor& parameter, const at::Tensor& gradient, const LarsOptions& options) {
  const auto weights = detail::norm_of(parameter);
  const auto gradients = detail::norm_of(gradient);
  const auto ratio =
      weights.mul(options.trust_coefficient()).div(gradients.add(weights, options.weight_decay()).add(options.eps()));
  const auto trust = detail::ratio_or_one(ratio, weights, gradients);
  return gradient.add(parameter, options.weight_decay()).mul(trust.mul(options.lr()));
}

void update_any(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& velocity,
                const LarsOptions& options) {
  auto update = is_skipped(parameter, options) ? gradient.mul(options.lr()) : adapted(parameter, gradient, options);
  if (velocity.defined()) update = velocity.mul_(options.momentum()).add_(update);
  parameter.sub_(update);
}

}  // namespace

LarsOptions::LarsOptions(double lr) : lr_(lr) {}

void LarsOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(trust_coefficient);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(skip_one_dimensional);
}

void LarsOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, momentum);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, trust_coefficient);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, skip_one_dimensional);
}

double LarsOptions::get_lr() const {
  return lr();
}

void LarsOptions::set_lr(const double lr) {
  lr_ = lr;
}

Lars::Lars(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LarsOptions& defaults)
    : Optimizer(groups, std::make_unique<LarsOptions>(defaults)) {
  require_lars_options(defaults);
  for (const auto& group : param_groups_) require_lars_options(detail::options_of<LarsOptions>(group, "Lars"));
}

Lars::Lars(std::vector<at::Tensor> parameters, const LarsOptions& defaults)
    : Lars(std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(std::move(parameters))},
           defaults) {}

at::Tensor Lars::step(LossClosure closure) {
  const c10::NoGradGuard no_grad;
  auto loss = detail::evaluate(closure);
  detail::FoundInf never;
  update_all(never);
  return loss;
}

void Lars::step_unless(const at::Tensor& found_inf) {
  const c10::NoGradGuard no_grad;
  detail::FoundInf given{found_inf};
  update_all(given);
}

void Lars::update_all(detail::FoundInf& found_inf) {
  detail::update_each<LarsOptions>(
      *this, found_inf, "Lars",
      [this](const at::Tensor& parameter, const at::Tensor& gradient, const LarsOptions& options) {
        update(parameter, gradient, options);
      },
      [&](const detail::DeviceList& list, const LarsOptions& options, std::size_t group) {
        update_on_device(list, options, group, found_inf);
      });
}

void Lars::update(const at::Tensor& parameter, const at::Tensor& gradient, const LarsOptions& options) {
  at::Tensor velocity;
  if (options.momentum() != 0) {
    auto& kept = detail::state_of<torch::optim::SGDParamState>(state_, parameter).momentum_buffer();
    detail::prepare_state(kept, parameter);
    velocity = kept;
  }
  if (detail::is_flat(parameter)) {
    update_flat(parameter, gradient, velocity, options);
  } else {
    update_any(parameter, gradient, velocity, options);
  }
}

// The update of torch's SGD with momentum, with g + weight_decay w times rate and trust ratio for the gradient.
void Lars::update_on_device(const detail::DeviceList& list, const LarsOptions& options, std::size_t group,
                            detail::FoundInf& found_inf) {
  detail::require_given_to_recording(rates_.is_recording());
  std::vector<at::Tensor> velocities;
  std::vector<bool> is_adapted;
  for (std::size_t index = 0; index < list.values.size(); ++index) {
    is_adapted.push_back(!is_skipped(list.parameters[index], options));
    if (options.momentum() == 0) continue;
    auto& kept = detail::state_of<torch::optim::SGDParamState>(state_, list.parameters[index]).momentum_buffer();
    detail::prepare_device_state(kept, list.values[index], rates_.is_recording());
    velocities.push_back(kept);
  }
  detail::ScaledTemporaries updates{list.values};
  at::_foreach_copy_(updates.tensors(), list.gradients);
  const auto rate = detail::rate_tensor(rates_, group, options.lr(), list);
  at::Tensor rates;
  const auto adapted = detail::select(list.values, is_adapted);
  if (!adapted.empty()) {
    const auto weights = detail::norms_of(adapted);
    const auto gradients = detail::norms_of(detail::select(list.gradients, is_adapted));
    const auto lengths = gradients.add(weights, options.weight_decay()).add_(options.eps());
    rates = detail::ratio_or_one(weights.mul(options.trust_coefficient()).div_(lengths), weights, gradients).mul_(rate);
    if (options.weight_decay() != 0) {
      at::_foreach_add_(detail::select(updates.tensors(), is_adapted), adapted, options.weight_decay());
    }
  }
  updates.scale(detail::factors_of(is_adapted, rates, rate));
  at::_fused_sgd_(list.values, updates.tensors(), velocities, /*weight_decay=*/0, options.momentum(), /*lr=*/1.0,
                  /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false, /*grad_scale=*/{},
                  found_inf.on(list.device()));
}

void Lars::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<torch::optim::SGDParamState, LarsOptions>(archive, *this);
}

void Lars::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<torch::optim::SGDParamState, LarsOptions>(archive, *this);
}

}  // namespace libtrain::optim
