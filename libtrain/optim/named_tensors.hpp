#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace libtrain::optim {

/// Tensors with their names, in a fixed order.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The module's defined parameters, then its defined buffers, under their names in named_parameters() and
/// named_buffers(): the module's own tensors, not copies.
NamedTensors named_tensors(const torch::nn::Module& module);

}  // namespace libtrain::optim
