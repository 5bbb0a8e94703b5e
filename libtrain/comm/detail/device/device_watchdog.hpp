#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <libtrain/base/clock.hpp>
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

  /// The watchdog's thread calls it first: sets the current device of that thread, and that its calls of the device
  /// leave alone what other threads record into graphs.
  virtual void enter_thread() noexcept {}

  /// The error that the communication library reports; empty if there is none.
  virtual std::string asynchronous_error() = 0;

  /// What to tell the user about an exception that a call of the device has thrown.
  virtual std::string describe(const std::exception& error) const { return error.what(); }

  /// Ends the collectives on the device without the peers; none reaches a stream after it has returned, which may take
  /// long. Later calls have no effect.
  virtual void abort() noexcept = 0;

  /// Closes the communicator together with the peers, which all call it at about this time, when no collective is
  /// running. Takes a few seconds at most.
  virtual void close() noexcept = 0;

  /// Leaves the communicator to the end of the process, neither closed nor aborted: closing waits for peers of this
  /// host, which do not close it at this time. No later call has an effect.
  virtual void leave() noexcept = 0;
};

/// A collective that a device runs asynchronously.
class DeviceOperation : public Pending {
 public:
  /// Everything that identifies it. `device` is the type of the device, such as "cuda"; `label` may be null.
  struct Identity {
    Call call = {};
    std::string device = {};
    std::uint64_t sequence = 0;
    std::shared_ptr<const std::string> label = {};
  };

  DeviceOperation(Identity identity, const Deadline& deadline) : identity_(std::move(identity)), deadline_(deadline) {}

  const Deadline& deadline() const { return deadline_; }
  std::uint64_t sequence() const { return identity_.sequence; }

  /// "all_reduce of 10 float32 (sum) on cuda for bucket 3".
  std::string what() const;

  /// "all_reduce of 10 float32 (sum) on cuda for bucket 3 (collective number 7)".
  std::string name() const;

  /// Whether the device has finished it. Throws if the device has failed.
  virtual bool has_ended() = 0;

  /// Releases the tensors. The watchdog calls it once, after the end.
  virtual void release() noexcept = 0;

  /// The communicator has been aborted: if the collective is not in a stream by now, it never will be. The watchdog
  /// may call it several times.
  virtual void note_abort() noexcept {}

 private:
  Identity identity_;
  Deadline deadline_;
};

/// Memory that a program no longer refers to, but a device may still use. The destructor frees it.
class RetiredMemory {
 public:
  RetiredMemory() = default;
  virtual ~RetiredMemory() = default;
  RetiredMemory(const RetiredMemory&) = delete;  // one owner
  RetiredMemory& operator=(const RetiredMemory&) = delete;

  /// Whether the stream that used it last is through. Throws if the device has failed.
  virtual bool is_unused() = 0;
};

/// Watches the collectives that a device runs asynchronously, with two threads. About every 100 ms, the watcher
/// releases finished collectives and checks for errors of the library and for missed deadlines. Its calls of the device
/// may block while another thread is inside the CUDA runtime: the supervisor, which does not call the device, reports a
/// missed deadline if the watcher has made no progress for seconds.
///
/// Invariants:
/// - the first failure is stored before it is reported, and reported before the communicator is aborted, once;
/// - tensors are kept until the device has finished with them, also after a failure;
/// - only the watcher calls the communicator, and closes, leaves or aborts it at its end.
class DeviceWatchdog {
 public:
  DeviceWatchdog(std::shared_ptr<WatchedComm> comm, std::shared_ptr<FirstFailure> failure, OnFailure on_failure);

  /// Waits a few seconds for operations, then closes or aborts the communicator. Never blocks longer than that: a
  /// thread stuck in a communication library is detached with everything that it may access, and reports no failure any
  /// more.
  ~DeviceWatchdog();

  DeviceWatchdog(const DeviceWatchdog&) = delete;  // the threads refer to the shared state
  DeviceWatchdog& operator=(const DeviceWatchdog&) = delete;

  /// Holds the operation until it has ended.
  void watch(std::shared_ptr<DeviceOperation> operation);

  /// Stores `failure` unless there already is one, and makes the watcher abort the communicator. Any thread may call
  /// it.
  void fail(std::exception_ptr failure) noexcept;

  /// The peers do not close the communicator together with this rank: the destructor leaves it, see WatchedComm.
  void leave_at_end() noexcept;

  /// Receives memory that is freed when it is unused and the operations that are watched now have ended. Any thread may
  /// call it, also after the watchdog has been destroyed: the memory is freed at once then.
  std::function<void(std::shared_ptr<RetiredMemory>)> retire() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread watcher_;
  std::thread supervisor_;
};

}  // namespace libtrain::detail
