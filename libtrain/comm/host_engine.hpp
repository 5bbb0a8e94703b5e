#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <libtrain/comm/host_transport.hpp>
#include <libtrain/comm/operation.hpp>
#include <libtrain/comm/work.hpp>

namespace libtrain::detail {

/// The communication thread of one communicator: runs operations in the order they came, each after all ranks have
/// agreed that it is the same one.
///
/// Invariants:
/// - one operation at a time is in the transport; operation n + 1 starts after n has ended;
/// - after the first failure nothing enters the transport again: queued and later operations end with that failure;
/// - an Operation ends exactly once, on the communication thread.
class HostEngine {
 public:
  HostEngine(std::unique_ptr<HostTransport> transport, std::chrono::milliseconds timeout);

  /// Lets queued operations end for a few seconds, then aborts the transport. Never blocks for longer than that: a
  /// thread stuck in a foreign library is left behind with everything it may touch.
  ~HostEngine();

  HostEngine(const HostEngine&) = delete;  // the thread refers to the shared state
  HostEngine& operator=(const HostEngine&) = delete;

  const HostTransport& transport() const;
  std::chrono::milliseconds timeout() const;

  /// Queues `body`. `description` must be equal on all ranks. Throws the first failure if there was one.
  Work submit(std::string description, std::function<void(HostTransport&, const Patience&)> body);

  void abort(const std::string& reason, ExitCode code) noexcept;

  std::shared_ptr<void> allocate(std::size_t bytes);

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace libtrain::detail
