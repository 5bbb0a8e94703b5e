#pragma once

#include <ATen/core/Tensor.h>

namespace libtrain::detail {

/// Whether the parameter alone will read or write the memory of `gradient`, which autograd has just accumulated
/// out of `incoming`: no other gradient, no part of the graph that still waits for it, no tensor that a user has kept.
/// Only in a post hook of the parameter's accumulator, whose argument `incoming` is; undefined where hooks behind that
/// one get it, too. In doubt it says no.
bool is_alone_in_memory(const at::Tensor& gradient, const at::Tensor& incoming);

}  // namespace libtrain::detail
