#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/FunctionRef.h>
#include <torch/optim/optimizer.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

// What the optimizers of this folder have in common. A parameter is updated by a kernel as flat memory where it can be,
// together with its gradient and state, which are brought to its layout; otherwise by tensor operators.

namespace libtrain::optim::detail {

using OptimizerStates = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

/// Whether kernels may take the parameter as flat memory: float32 or float64, on the CPU, dense, without overlap.
bool is_flat(const at::Tensor& parameter);

/// The parameter's gradient, undefined where it has none; in the parameter's dtype and order of elements where that is
/// flat. Throws UsageError for a sparse gradient and for one of another shape.
at::Tensor gradient_of(const at::Tensor& parameter, std::string_view optimizer);

/// Makes `state` fit its parameter: zero where it is undefined, and in the parameter's dtype, device and order of
/// elements, since one that was loaded may come from a parameter of other ones. Throws UsageError for another shape.
void prepare_state(at::Tensor& state, const at::Tensor& parameter);

/// For what was written past torch's operators: a backward() through a graph from before the step is then refused.
void mark_changed(const at::Tensor& parameter);

/// A run of elements of a flat parameter.
struct Piece {
  std::size_t index = 0;
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// The pieces of a flat parameter: a function of its size alone, so that what is summed up piece by piece does not
/// depend on the number of threads.
std::size_t count_pieces(const at::Tensor& flat);

/// Calls `body` for all pieces, on torch's intra-op threads where there are several of both. It must not throw.
void for_each_piece(const at::Tensor& flat, c10::function_ref<void(const Piece&)> body);

/// Throws UsageError for an option `name` that is not a finite number of 0 or more.
void require_not_negative(double value, std::string_view name);

/// Calls `body` with an element of a flat parameter's type.
template <typename Body>
void with_element_type(const at::Tensor& flat, const Body& body) {
  if (flat.scalar_type() == at::kFloat) return body(float{});
  return body(double{});
}

/// The state of `parameter`, made where there is none yet.
template <typename State>
State& state_of(OptimizerStates& states, const at::Tensor& parameter) {
  auto& state = states[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

/// The group's options. Throws UsageError where they are of another type.
template <typename Options>
const Options& options_of(const torch::optim::OptimizerParamGroup& group, std::string_view optimizer) {
  const auto* options = dynamic_cast<const Options*>(&group.options());
  if (options == nullptr) {
    throw UsageError(text("A parameter group of ", optimizer, " has options of another optimizer. Give it options of ",
                          "the type that the constructor takes, or none, to have its defaults."));
  }
  return *options;
}

/// A step as torch's optimizers make it: the loss of `closure`, evaluated with gradients enabled, undefined without
/// one; then update(parameter, gradient, options) for every parameter that has a gradient.
template <typename Options, typename Update>
at::Tensor step_each(torch::optim::Optimizer& optimizer, const torch::optim::Optimizer::LossClosure& closure,
                     std::string_view name, const Update& update) {
  const c10::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure) {
    const c10::AutoGradMode with_grad(true);
    loss = closure();
  }
  for (const auto& group : optimizer.param_groups()) {
    const auto& options = options_of<Options>(group, name);
    for (const auto& parameter : group.params()) {
      const auto gradient = gradient_of(parameter, name);
      if (gradient.defined()) update(parameter, gradient, options);
    }
  }
  return loss;
}

}  // namespace libtrain::optim::detail
