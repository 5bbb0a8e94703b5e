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
/// compute. A caller that has nothing to do but wait for one runs it itself, where no thread has begun: handing a small
/// collective to another thread and back costs several times what the collective itself does.
///
///     submitted --> queued --> arriving --> in its body --> done, or failed
///
/// Invariants:
/// - one collective at a time is in the transport; n + 1 starts after n has ended;
/// - after the first failure nothing enters the transport again: queued and later collectives end with that failure,
///   and the peers are told of one that only this rank has met, as far as the transport can;
/// - each ends exactly once, and its body, which owns the tensors, is gone before anybody who waits goes on.
///
/// A deadline counts from the call; a collective that has not begun by then fails and names the one before it that has
/// not ended. What could keep a waiting thread beyond its own deadline stays with the communication thread: calls of
/// transports that cannot be interrupted, and older collectives with later deadlines. A wait gives up 4.5 s after the
/// deadline where the communication thread itself is stuck in a foreign library.
class CommunicationThread {
 public:
  /// What a collective does, in the transport and with its deadline; it holds the tensors.
  using Body = std::function<void(HostTransport&, const WaitPolicy&)>;

  CommunicationThread(std::unique_ptr<HostTransport> transport, std::chrono::milliseconds timeout);

  /// Lets queued collectives end for 5 s (0.2 s while an exception unwinds), then aborts the transport, and after one
  /// more second leaves a thread that is stuck in a foreign library behind, with everything that it may touch.
  ~CommunicationThread();

  CommunicationThread(const CommunicationThread&) = delete;  // it is one thread
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  /// Until then collectives run only where a caller waits for them.
  void start();

  const HostTransport& transport() const;
  std::chrono::milliseconds timeout() const;

  /// What a collective is given besides the call itself: the buffers that its transport will see, and a bound of its
  /// own.
  struct Details {
    const void* input = nullptr;
    void* output = nullptr;
    std::optional<std::chrono::milliseconds> timeout = {};
  };

  /// Queues `body`. Throws the first failure if there was one.
  Work submit(const Call& call, const Details& details, Body body);

  /// Throws the first failure if there was one.
  void throw_if_failed() const;

  /// See Communicator. By the thread that submits.
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
  const std::shared_ptr<Queue> queue_;  // shared with the thread, which may outlive this
  std::thread thread_;
  std::shared_ptr<const std::string> label_;
};

}  // namespace libtrain::detail
