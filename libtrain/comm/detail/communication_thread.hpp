#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <libtrain/comm/collective_record.hpp>
#include <libtrain/comm/detail/call.hpp>
#include <libtrain/comm/host_transport.hpp>
#include <libtrain/comm/work.hpp>

namespace libtrain::detail {

/// The collectives of a transport, in the order of the calls, and the thread that runs them while their callers
/// compute. A caller that waits for a collective that no thread has started runs it itself: handing a small collective
/// to another thread and back costs several times as much as the collective.
///
///     submitted --> queued --> arriving --> in its body --> done, or failed
///
/// Invariants:
/// - one collective at a time is in the transport; n + 1 starts after n has finished;
/// - after the first failure nothing enters the transport again: queued and later collectives end with that failure,
///   and a failure of this rank alone is reported to the peers, as far as the transport can;
/// - each ends exactly once, and its body, which owns the tensors, is destroyed before any waiting thread continues.
///
/// A deadline counts from the call; a collective that has not started by then fails with an error that names the
/// unfinished collective before it. The communication thread runs everything that could block a waiting thread beyond
/// its own deadline: calls of transports that cannot be interrupted, and older collectives with later deadlines. A wait
/// gives up 4.5 s after the deadline if the communication thread itself is stuck in a communication library.
class CommunicationThread {
 public:
  /// Runs a collective in the transport with its deadline; it owns the tensors.
  using Body = std::function<void(HostTransport&, const WaitPolicy&)>;

  CommunicationThread(std::unique_ptr<HostTransport> transport, std::chrono::milliseconds timeout);

  /// Waits up to 5 s for queued collectives, then aborts the transport, and after one more second detaches a thread
  /// that is stuck in a communication library, with everything that it may access. During stack unwinding it waits
  /// up to 0.2 s, and leaves the transport, with what is still queued and its tensors, to abort_after_report().
  ~CommunicationThread();

  CommunicationThread(const CommunicationThread&) = delete;  // owns a thread
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  /// Starts the thread. Until then collectives run only while a caller waits for them.
  void start();

  const HostTransport& transport() const;
  std::chrono::milliseconds timeout() const;

  /// Further arguments of a collective: the buffers that its transport announces, and its own timeout.
  struct Details {
    const void* input = nullptr;
    void* output = nullptr;
    std::optional<std::chrono::milliseconds> timeout = {};
  };

  /// Queues `body`. Throws the first failure if there was one.
  Work submit(const Call& call, const Details& details, Body body);

  /// Throws the first failure if there was one.
  void throw_if_failed() const;

  /// See Communicator. Called by the thread that submits.
  std::shared_ptr<const std::string> label_calls(std::shared_ptr<const std::string> label) {
    return std::exchange(label_, std::move(label));
  }

  /// The last collectives, oldest first.
  std::vector<CollectiveRecord> recent() const;

  void abort(const std::string& reason, ExitCode code) noexcept;

  std::shared_ptr<void> allocate(std::size_t bytes);

 private:
  class Operation;
  class Queue;
  const std::shared_ptr<Queue> queue_;  // shared with the thread, which may outlive this object
  std::thread thread_;
  std::shared_ptr<const std::string> label_;
};

}  // namespace libtrain::detail
