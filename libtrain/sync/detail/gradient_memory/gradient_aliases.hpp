#pragma once

#include <ATen/core/Tensor.h>

namespace libtrain::detail {

/// Whether only the parameter can read or write the memory of `gradient`, which autograd has just accumulated from
/// `incoming`: no other gradient, no pending part of the graph, and no tensor of the user refers to it. Only in a post
/// hook of the parameter's accumulator; `incoming` is its argument, undefined if later hooks get it, too. False in
/// doubt.
bool is_alone_in_memory(const at::Tensor& gradient, const at::Tensor& incoming);

}  // namespace libtrain::detail
