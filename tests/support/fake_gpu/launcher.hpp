#pragma once

#include <libtrain/comm/detail/device/device_launcher.hpp>

namespace libtrain::test {

/// A DeviceLauncher for a fake GPU of this rank, so that DeviceCommunicator runs on it as over NCCL: a collective is
/// queued work in which the rank meets its peers, over a part of the communicator for host memory. Missed deadlines are
/// found by the watchdog, which aborts that part. Collectives can be recorded into a FakeGraph.
detail::ConnectLauncher fake_gpu_launcher(const at::Device& device);

}  // namespace libtrain::test
