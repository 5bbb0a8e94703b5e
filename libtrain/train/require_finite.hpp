#pragma once

#include <torch/nn/module.h>

namespace libtrain {

/// Throws UsageError if a parameter or buffer of the module contains NaN or infinity; the message names the first. Call
/// it after training, so that non-finite weights are not used as a result. Reads each tensor once, on any device.
void require_finite(const torch::nn::Module& module);

}  // namespace libtrain
