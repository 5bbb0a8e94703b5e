#include <libtrain/optim/fused_sgd.hpp>

#include <libtrain/numeric/detail/optimizer_steps.hpp>
#include <libtrain/optim/detail/dense_update.hpp>

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

}  // namespace

at::Tensor FusedSgd::step(LossClosure closure) {
  return detail::step_each<torch::optim::SGDOptions>(
      *this, closure, "FusedSgd",
      [this](const at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::SGDOptions& options) {
        update(parameter, gradient, options);
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

}  // namespace libtrain::optim
