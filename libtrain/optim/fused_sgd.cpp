#include <libtrain/optim/fused_sgd.hpp>

#include <vector>

#include <ATen/ops/_fused_sgd.h>
#include <c10/core/GradMode.h>

#include <libtrain/base/error.hpp>
#include <libtrain/numeric/detail/optimizer_steps.hpp>
#include <libtrain/optim/detail/dense_update.hpp>
#include <libtrain/optim/detail/device_update.hpp>

namespace libtrain::optim {

namespace {

void update_any(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& buffer,
                const libtrain::detail::SgdStep& step) {
  auto update = step.weight_decay != 0 ? gradient.add(parameter, step.weight_decay) : gradient;
  if (step.momentum != 0) {
    if (step.first) {
      buffer.copy_(update);
    } else {
      buffer.mul_(step.momentum).add_(update, 1 - step.dampening);
    }
    update = step.nesterov ? update.add(buffer, step.momentum) : buffer;
  }
  parameter.add_(update, -step.learning_rate);
}

// The first step is another operation than those that replays repeat.
void require_first_step_before_recording(bool recording) {
  if (!recording) return;
  throw UsageError(
      "A step of FusedSgd with dampening is being recorded for a parameter that has no momentum yet: it had no "
      "gradient before, or all steps were skipped. Make one step that is not skipped first, such as with a smaller "
      "LossScalerOptions::initial_scale or more warm-up steps.");
}

struct SgdLists {
  void add(const at::Tensor& value, const at::Tensor& gradient, const at::Tensor& buffer = {}) {
    values.push_back(value);
    gradients.push_back(gradient);
    if (buffer.defined()) buffers.push_back(buffer);
  }

  std::vector<at::Tensor> values;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> buffers;
};

}  // namespace

at::Tensor FusedSgd::step(LossClosure closure) {
  const c10::NoGradGuard no_grad;
  auto loss = detail::evaluate(closure);
  detail::FoundInf never;
  update_all(never);
  return loss;
}

void FusedSgd::step_unless(const at::Tensor& found_inf) {
  const c10::NoGradGuard no_grad;
  detail::FoundInf given{found_inf};
  update_all(given);
}

void FusedSgd::update_all(detail::FoundInf& found_inf) {
  detail::update_each<torch::optim::SGDOptions>(
      *this, found_inf, "FusedSgd",
      [this](const at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::SGDOptions& options) {
        update(parameter, gradient, options);
      },
      [&](const detail::DeviceList& list, const torch::optim::SGDOptions& options, std::size_t group) {
        update_on_device(list, options, group, found_inf);
      });
}

void FusedSgd::update(const at::Tensor& parameter, const at::Tensor& gradient,
                      const torch::optim::SGDOptions& options) {
  auto step = detail::sgd_step(options);
  at::Tensor buffer;
  if (step.momentum != 0) {
    auto& kept = detail::state_of<torch::optim::SGDParamState>(state_, parameter).momentum_buffer();
    step.first = !kept.defined();
    detail::prepare_state(kept, parameter);
    buffer = kept;
  }
  if (detail::is_flat(parameter)) {
    detail::sgd_pieces(parameter, gradient, buffer, step);
    detail::mark_changed(parameter);
  } else {
    update_any(parameter, gradient, buffer, step);
  }
}

void FusedSgd::update_on_device(const detail::DeviceList& list, const torch::optim::SGDOptions& options,
                                std::size_t group, detail::FoundInf& found_inf) {
  detail::require_given_to_recording(rates_.is_recording());
  SgdLists later;  // those with a momentum buffer, or without momentum
  SgdLists first;
  for (std::size_t index = 0; index < list.values.size(); ++index) {
    if (options.momentum() == 0) {
      later.add(list.values[index], list.gradients[index]);
      continue;
    }
    auto& buffer = detail::state_of<torch::optim::SGDParamState>(state_, list.parameters[index]).momentum_buffer();
    // Without dampening, a buffer of zeros gives the same first step, also if it comes after skipped ones.
    const bool is_first = !buffer.defined() && options.dampening() != 0;
    if (is_first) require_first_step_before_recording(rates_.is_recording());
    if (is_first && found_inf.on_host()) continue;
    detail::prepare_device_state(buffer, list.values[index], rates_.is_recording());
    (is_first ? first : later).add(list.values[index], list.gradients[index], buffer);
  }
  for (const auto* lists : {&later, &first}) {
    if (lists->values.empty()) continue;
    const auto call = [&](const auto& rate) {
      at::_fused_sgd_(lists->values, lists->gradients, lists->buffers, options.weight_decay(), options.momentum(), rate,
                      options.dampening(), options.nesterov(), /*maximize=*/false, /*is_first_step=*/lists == &first,
                      /*grad_scale=*/{}, found_inf.on(list.device()));
    };
    if (rates_.is_recording()) {
      call(rates_.of(group, list.device()));
    } else {
      call(options.lr());
    }
  }
}

}  // namespace libtrain::optim
