#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/call.hpp>
#include <libtrain/comm/detail/first_failure.hpp>
#include <libtrain/comm/work.hpp>

namespace libtrain::detail {

/// Receives the reason if a communicator fails while no call is in progress: on a thread of its watchdog, once, before
/// the communicator is aborted. It may end the process.
using OnFailure = std::function<void(const std::string& reason)>;

/// The interface of a device communicator for its watchdog. Any thread may call it.
class WatchedComm {
 public:
  virtual ~WatchedComm() = default;

  /// The watchdog's thread calls it first: sets the current device of that thread.
  virtual void enter_thread() noexcept {}

  /// The error that the communication library reports; empty if there is none.
  virtual std::string asynchronous_error() = 0;

  /// Ends the collectives on the device without the peers. Later calls have no effect.
  virtual void abort() noexcept = 0;

  /// Closes the communicator together with the peers when no collective is running; aborts it if they do not close in
  /// time.
  virtual void close() noexcept = 0;
};

/// A collective that a device runs asynchronously.
class DeviceOperation : public Pending {
 public:
  DeviceOperation(const Call& call, std::uint64_t sequence, const Deadline& deadline)
      : call_(call), sequence_(sequence), deadline_(deadline) {}

  const Deadline& deadline() const { return deadline_; }

  /// "all_reduce of 10 float32 (sum) (collective number 7)".
  std::string name() const { return text(to_string(call_), " (collective number ", sequence_, ")"); }

  /// Whether the device has finished it. Throws if the device has failed.
  virtual bool has_ended() = 0;

  /// Releases the tensors. The watchdog calls it once, after the end.
  virtual void release() noexcept = 0;

 private:
  Call call_;
  std::uint64_t sequence_;
  Deadline deadline_;
};

/// Watches the collectives that a device runs asynchronously, with two threads. About every 100 ms, the watcher
/// releases finished collectives and checks for errors of the library and for missed deadlines. Its calls of the device
/// may block while another thread is inside the CUDA runtime: the supervisor, which does not call the device, reports a
/// missed deadline if the watcher has made no progress for seconds.
///
/// Invariants:
/// - the first failure is stored before it is reported, and reported before the communicator is aborted, once;
/// - tensors are kept until the device has finished with them, also after a failure;
/// - only the watcher calls the communicator, and closes or aborts it at its end.
class NcclWatchdog {
 public:
  NcclWatchdog(std::shared_ptr<WatchedComm> comm, std::shared_ptr<FirstFailure> failure, OnFailure on_failure);

  /// Waits a few seconds for operations, then closes or aborts the communicator. Never blocks longer than that: a
  /// thread stuck in a communication library is detached with everything that it may access, and reports no failure any
  /// more.
  ~NcclWatchdog();

  NcclWatchdog(const NcclWatchdog&) = delete;  // the threads refer to the shared state
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  void watch(std::shared_ptr<DeviceOperation> operation);

  /// Stores `failure` unless there already is one, and makes the watcher abort the communicator. Any thread may call
  /// it.
  void fail(std::exception_ptr failure) noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread watcher_;
  std::thread supervisor_;
};

}  // namespace libtrain::detail
