#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

/// Whether two tensors of the same elements are the same where they lie in memory in different orders.
enum class Layouts { ignored, compared };

/// Throws UsageError on every rank, all with the same text, unless all ranks' modules have the same parameters and
/// buffers: names, order, shapes, dtypes and requires_grad, and strides as `layouts` says. The text names the first
/// difference: the tensor, what it is on rank 0, what it is elsewhere, and on which ranks. All ranks must call it.
void require_same_model(const torch::nn::Module& module, Communicator& communicator,
                        Layouts layouts = Layouts::ignored);

namespace detail {

/// One line a tensor: "parameter", name, shape, strides where they are compared and not those of a contiguous tensor,
/// dtype, requires_grad.
std::vector<std::string> model_signature(const torch::nn::Module& module, Layouts layouts);

}  // namespace detail

}  // namespace libtrain
