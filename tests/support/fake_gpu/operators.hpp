#pragma once

#include <ATen/core/Tensor.h>

namespace libtrain::test::fake {

/// Registers kernels for all operators.
///
/// A kernel of the fake GPU computes the shapes of its results on the host, allocates them, and queues the operator's
/// CPU kernel in the current stream, over the memory of the operands. Views change no data and are made at once.
/// Operators whose result the host must know (`item`, `equal`, `nonzero`) wait for the stream.
void register_operators();

/// A CPU tensor over the memory of a tensor of a fake GPU, which it does not hold: for queued work only.
at::Tensor kernel_view(const at::Tensor& tensor);

}  // namespace libtrain::test::fake
