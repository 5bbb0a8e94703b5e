#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace libtrain::models::detail {

/// A function of states and parameters.
using LayerFunction = std::function<at::Tensor(const at::Tensor& states, const std::vector<at::Tensor>& parameters)>;

/// layer(states, parameters), for whose backward pass `states` alone are kept: it computes the layer again, under the
/// autocast and from the state of the device's generator that it had at first. The gradients of `parameters` go to
/// autograd together, as any operator's do; hooks on them are called once. The backward pass throws c10::Error if
/// states or parameters were changed in place since.
///
/// `layer` is called under at::NoGradGuard at first, and later in a thread of autograd, with other tensors of the same
/// values. On the CPU its random numbers must come from seeds of its own, because other threads use the generator, or
/// else `uses_generator` must be set.
at::Tensor recompute_in_backward(const LayerFunction& layer, const at::Tensor& states,
                                 const std::vector<at::Tensor>& parameters, bool uses_generator);

}  // namespace libtrain::models::detail
