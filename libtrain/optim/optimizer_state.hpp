#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <libtrain/optim/named_tensors.hpp>

namespace libtrain::optim {

/// The state of an optimizer by the names of `module`'s parameters, for checkpoints: "fc.weight.momentum_buffer";
/// "fc.weight.step", "fc.weight.exp_avg", "fc.weight.exp_avg_sq", and so on, as the members of torch's
/// OptimizerParamState are called. In the order of the optimizer's groups; parameters that have not been stepped have
/// none. A parameter of several names (tied weights) has its state once, under the first of them.
///
/// The tensors are the optimizer's own, not copies, of the parameter's shape and on its device; "step" is a copy, int64
/// without dimensions, on the CPU. Options and learning rates are not included: a program sets them again.
///
/// For SGD, Adam, AdamW and RMSprop of torch::optim, those of libtrain::optim, and classes derived from them.
/// For an optimizer on a GPU, waits for its step counts. Throws UsageError for another optimizer, and for a parameter
/// that is not one of the module.
NamedTensors optimizer_state(const torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

/// Continues from such a state, in any order of the names; what the optimizer had is lost, also for parameters that the
/// state does not contain. Values are copied, to the parameter's device and memory layout, and keep the dtype that they
/// have in `state`. Throws UsageError, and changes nothing, for names that do not belong to the optimizer, for state of
/// another shape than its parameter, if a parameter's state is incomplete, and as optimizer_state() does.
void load_optimizer_state(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                          const NamedTensors& state);

}  // namespace libtrain::optim
