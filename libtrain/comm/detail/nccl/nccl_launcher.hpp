#pragma once

#include <libtrain/comm/detail/device/device_launcher.hpp>

namespace libtrain::detail {

/// A DeviceLauncher over NCCL, for GPU `device` of this rank. Each communicator that it connects is a non-blocking one,
/// see NcclComm. Collectives can be recorded into CUDA graphs.
ConnectLauncher nccl_launcher(const at::Device& device);

/// Whether a stream of CUDA is recording a graph.
bool cuda_stream_is_recording(const c10::Stream& stream);

}  // namespace libtrain::detail
