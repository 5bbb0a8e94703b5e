#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace libtrain::test {

constexpr int kFakeGpus = 8;

/// A GPU that exists in tests only: LibTorch's PrivateUse1 device, on the CPU, with the semantics of CUDA (see
/// README.md in this folder). Any thread may call it.
at::Device fake_gpu(int index = 0);

/// What this process has done so far, on all fake GPUs.
struct FakeGpuCounts {
  std::uint64_t host_synchronizations = 0;  ///< times at which a thread had to wait for a device
  std::uint64_t device_operations = 0;      ///< kernels, copies and graph launches that were queued

  friend FakeGpuCounts operator-(const FakeGpuCounts& a, const FakeGpuCounts& b) {
    return {a.host_synchronizations - b.host_synchronizations, a.device_operations - b.device_operations};
  }
  friend bool operator==(const FakeGpuCounts&, const FakeGpuCounts&) = default;
};
FakeGpuCounts fake_gpu_counts();

/// While it exists, a host synchronisation by the thread that made it throws c10::Error, which names the operator.
class [[nodiscard]] NoHostSynchronization {
 public:
  NoHostSynchronization();
  ~NoHostSynchronization();
  NoHostSynchronization(const NoHostSynchronization&) = delete;  // one scope of one thread
  NoHostSynchronization& operator=(const NoHostSynchronization&) = delete;
};

/// While it exists, `stream` does not run what is queued after its construction.
class [[nodiscard]] BlockedStream {
 public:
  explicit BlockedStream(const c10::Stream& stream);
  ~BlockedStream();
  BlockedStream(const BlockedStream&) = delete;  // one gate in one stream
  BlockedStream& operator=(const BlockedStream&) = delete;

 private:
  struct Gate;
  std::shared_ptr<Gate> gate_;
};

/// While it exists, each stream of the process sleeps before some of its operations, up to `longest`: so that work
/// which is not ordered by a stream or an event runs in the order that its author did not expect. One at a time.
class [[nodiscard]] FakeGpuDelays {
 public:
  explicit FakeGpuDelays(std::uint64_t seed, std::chrono::microseconds longest = std::chrono::microseconds(200));
  ~FakeGpuDelays();
  FakeGpuDelays(const FakeGpuDelays&) = delete;  // one setting for the process
  FakeGpuDelays& operator=(const FakeGpuDelays&) = delete;
};

/// A recorded sequence of operations, like a CUDA graph. As with CUDA, other streams join the recording by waiting for
/// an event of a recorded stream and must be waited for before its end, and host synchronisations of recorded streams
/// throw. Memory that is allocated while recording stays reserved for the graph. Each replay uses the random numbers of
/// the recording, unlike a CUDA graph's.
class FakeGraph {
 public:
  FakeGraph() = default;
  ~FakeGraph();
  FakeGraph(const FakeGraph&) = delete;  // owns memory
  FakeGraph& operator=(const FakeGraph&) = delete;

  /// From now on, what the calling thread's current stream of `device` gets is recorded and not run.
  void begin(const at::Device& device);

  /// Throws if a stream that has joined was not waited for, or if something was done that cannot be recorded.
  void end();

  /// Queues the recorded operations as one operation in the current stream of the device.
  void replay();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace libtrain::test
