#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <tests/support/on_ranks.hpp>

/// The multi-rank tests run on tensors of any device. They make tensors and modules on device(), and compare on the
/// host, after cpu(): the host cannot read a device's memory, and `torch::equal` wants both tensors on one device.
/// Suites whose name begins with HostOnly run on the CPU alone, for the reason that stands above them.

namespace libtrain::test {

/// The options of tensors on device().
inline at::TensorOptions on_device(at::ScalarType type) {
  return at::TensorOptions{device()}.dtype(type);
}

/// The module behind a holder such as `torch::nn::Linear`, with its parameters and buffers on device().
template <typename Holder>
Holder on_device(Holder module) {
  module->to(device());
  return module;
}

}  // namespace libtrain::test
