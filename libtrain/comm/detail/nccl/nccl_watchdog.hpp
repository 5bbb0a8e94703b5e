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

/// Receives the reason when a communicator fails behind the caller's back: on a thread of its watchdog, once, before
/// the device is stopped. It may end the process.
using OnFailure = std::function<void(const std::string& reason)>;

/// A device communicator as its watchdog sees it. Any thread may call it.
class WatchedComm {
 public:
  virtual ~WatchedComm() = default;

  /// Called before anything else by a thread that is going to look after it: makes its device that thread's own.
  virtual void enter_thread() noexcept {}

  /// What the communication library has found broken by itself; empty while all is well.
  virtual std::string asynchronous_error() = 0;

  /// Ends what runs on the device without asking the peers. Later calls change nothing.
  virtual void abort() noexcept = 0;

  /// The orderly end, together with the peers, when nothing runs any more; aborts where they do not come in time.
  virtual void close() noexcept = 0;
};

/// A collective that a device runs on its own once it has been called.
class DeviceOperation : public Pending {
 public:
  DeviceOperation(const Call& call, std::uint64_t sequence, const Deadline& deadline)
      : call_(call), sequence_(sequence), deadline_(deadline) {}

  const Deadline& deadline() const { return deadline_; }

  /// "all_reduce of 10 float32 (sum) (collective number 7)".
  std::string name() const { return text(to_string(call_), " (collective number ", sequence_, ")"); }

  /// Whether the device is through with it. Throws where the device has failed.
  virtual bool has_ended() = 0;

  /// Lets go of the tensors. Called once, by the watchdog, after the end.
  virtual void release() noexcept = 0;

 private:
  Call call_;
  std::uint64_t sequence_;
  Deadline deadline_;
};

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
  /// a thread stuck in a foreign library is left behind with everything it may touch, and tells no caller any more.
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
