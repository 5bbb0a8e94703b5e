#pragma once

#include <c10/core/Device.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/train/trainer.hpp>

namespace libtrain {

/// The precision in which the devices of all ranks train convolutional networks fastest: bfloat16 if a convolution and
/// its gradients are at least 1.2 times as fast in it on every rank, with channels_last, and float32 otherwise. CPUs
/// without AMX and AVX512-BF16, which emulate bfloat16, are not measured. Takes less than a second. `device` is the
/// rank's, on the current stream; the host waits for it. All ranks must call it.
Precision fastest_precision(Communicator& communicator, c10::Device device);

}  // namespace libtrain
