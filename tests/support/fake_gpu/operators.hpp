#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace libtrain::test::fake {

/// Registers kernels for all operators.
///
/// A kernel of the fake GPU computes the shapes of its results on the host, allocates them, and queues the operator's
/// CPU kernel in the current stream, over the memory of the operands. Views change no data and are made at once.
/// Operators whose result the host must know (`item`, `equal`, `nonzero`) wait for the stream.
void register_operators();

/// A CPU tensor over the memory of a tensor of a fake GPU, which it does not hold: for queued work only.
at::Tensor kernel_view(const at::Tensor& tensor);

/// Of a fake GPU; the contents are kept.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

}  // namespace libtrain::test::fake
