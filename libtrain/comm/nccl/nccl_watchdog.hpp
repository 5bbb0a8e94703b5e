#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <libtrain/comm/first_failure.hpp>
#include <libtrain/comm/nccl/device_operation.hpp>
#include <libtrain/comm/nccl/watched_comm.hpp>

namespace libtrain {

/// Receives the reason when a communicator fails behind the caller's back: on a thread of its watchdog, once, before
/// the device is stopped. It may end the process.
using OnFailure = std::function<void(const std::string& reason)>;

}  // namespace libtrain

namespace libtrain::detail {

/// Looks after the collectives that a device runs on its own, with two threads. The watcher lets go of those that have
/// ended about every 100 ms, and looks for errors that the library reports and for deadlines that have passed. What it
/// asks the device may hang while another thread is inside the CUDA runtime: so the supervisor, which asks the device
/// nothing, reports a missed deadline where the watcher has not come round for seconds.
///
/// Invariants:
/// - the first failure is stored before anybody is told, told before the communicator is aborted, and aborted once;
/// - tensors are held until the device is through with them, also after a failure;
/// - the watcher alone calls the communicator, and closes or aborts it as the last thing it does.
class NcclWatchdog {
 public:
  NcclWatchdog(std::shared_ptr<WatchedComm> comm, std::shared_ptr<FirstFailure> failure, OnFailure on_failure);

  /// Lets operations end for a few seconds, then closes or aborts the communicator. Never blocks for longer than that:
  /// a thread stuck in a foreign library is left behind with everything it may touch, and tells nobody any more.
  ~NcclWatchdog();

  NcclWatchdog(const NcclWatchdog&) = delete;  // the threads refer to the shared state
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  void watch(std::shared_ptr<DeviceOperation> operation);

  /// Stores `failure` unless there was one, and has the communicator aborted. Any thread.
  void fail(std::exception_ptr failure) noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread watcher_;
  std::thread supervisor_;
};

}  // namespace libtrain::detail
