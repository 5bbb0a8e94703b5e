// Ranks as threads, each with a fake GPU and a DeviceCommunicator.

#include <gtest/gtest.h>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <libtrain/comm/detail/device/device_communicator.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>

#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/fake_gpu/launcher.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain::test {

namespace {

void run_gpu_ranks(int world_size, CommunicatorOptions options, const RankBody& body) {
  const auto run = [&](Communicator& ranks) {
    const auto gpu = fake_gpu(ranks.rank() % kFakeGpus);
    const c10::DeviceGuard on_device(gpu);
    detail::DeviceCommunicator communicator(ranks.split(0, ranks.rank()), fake_gpu_launcher(gpu), options, {});
    body(communicator);
  };
  run_ranks(world_size, run, options);
}

}  // namespace

at::Device device() {
  const auto first = fake_gpu();
  return c10::impl::VirtualGuardImpl(first.type()).getDevice();
}

void on_ranks(const RankBody& body) {
  for (const int world_size : {1, 2, 3, 4}) {
    SCOPED_TRACE(world_size);
    run_gpu_ranks(world_size, {.timeout = std::chrono::seconds(60)}, body);
  }
}

void on_many_ranks(const RankBody& body) {
  for (const int world_size : {1, 2, 3, 4, 7}) {
    SCOPED_TRACE(world_size);
    run_gpu_ranks(world_size, {.timeout = std::chrono::seconds(60)}, body);
  }
}

void on_fresh_ranks(int minimum_ranks, CommunicatorOptions options, const RankBody& body) {
  for (int world_size = minimum_ranks; world_size <= 4; ++world_size) {
    SCOPED_TRACE(world_size);
    run_gpu_ranks(world_size, options, body);
  }
}

}  // namespace libtrain::test
