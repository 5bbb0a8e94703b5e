#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

/// Whether tensors must have equal strides to be the same.
enum class Layouts { ignored, compared };

/// Throws UsageError on every rank, all with the same text, unless all ranks' modules have the same parameters and
/// buffers: names, order, shapes, dtypes and requires_grad, and strides with Layouts::compared. The text names the
/// first difference: the tensor, its properties on rank 0 and on other ranks, and those ranks. All ranks must call it.
void require_same_model(const torch::nn::Module& module, Communicator& communicator,
                        Layouts layouts = Layouts::ignored);

namespace detail {

/// One line for each tensor: "parameter" or "buffer", name, shape, strides if they are compared and the tensor is not
/// contiguous, dtype, requires_grad.
std::vector<std::string> model_signature(const torch::nn::Module& module, Layouts layouts);

}  // namespace detail

}  // namespace libtrain
