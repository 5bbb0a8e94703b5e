#pragma once

#include <torch/nn/module.h>

namespace libtrain {

/// Throws UsageError, which names the first one, where a parameter or buffer of the module holds NaN or infinity: when
/// training has ended, so that weights of no use do not pass for a result. Reads them once, on any device.
void require_finite(const torch::nn::Module& module);

}  // namespace libtrain
