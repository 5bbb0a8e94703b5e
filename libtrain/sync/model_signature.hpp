#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

/// Throws UsageError on every rank, all with the same text, unless all ranks' modules have the same parameters and
/// buffers: names, order, shapes, dtypes and requires_grad. The text names the first difference: the tensor, what it is
/// on rank 0, what it is elsewhere, and on which ranks. All ranks must call it.
void require_same_model(const torch::nn::Module& module, Communicator& communicator);

namespace detail {

/// One line a tensor: "parameter", name, dtype, shape, requires_grad.
std::vector<std::string> model_signature(const torch::nn::Module& module);

}  // namespace detail

}  // namespace libtrain
