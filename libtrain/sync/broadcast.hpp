#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

/// Makes every rank's tensors equal to `root`'s, in place and for any layout; returns when it is done. All ranks must
/// pass tensors of equal shapes and dtypes in the same order. Small tensors are sent together.
void broadcast_tensors(const std::vector<at::Tensor>& tensors, Communicator& communicator, int root = 0);

}  // namespace libtrain
