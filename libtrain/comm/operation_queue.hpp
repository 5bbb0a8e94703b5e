#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include <libtrain/comm/host_transport.hpp>
#include <libtrain/comm/operation.hpp>

namespace libtrain::detail {

/// The operations of one transport in the order of the calls, and the rule of who runs them: the communication thread,
/// or a thread that has nothing to do but wait for one of them. Handing a small operation to another thread and back
/// costs several times what the operation itself does.
///
/// Invariants:
/// - one operation at a time is in the transport; operation n + 1 starts after n has ended;
/// - after the first failure nothing enters the transport again: queued and later operations end with that failure;
/// - an Operation ends exactly once.
class OperationQueue {
 public:
  OperationQueue(std::unique_ptr<HostTransport> transport, std::chrono::milliseconds timeout)
      : transport(std::move(transport)), timeout(timeout) {}

  const std::unique_ptr<HostTransport> transport;
  const std::chrono::milliseconds timeout;

  /// Gives the operation its number. Throws the first failure if there was one.
  void submit(const std::shared_ptr<Operation>& operation, std::size_t bytes);

  /// What the communication thread does: runs operations until `stop` has been called and none is left.
  void serve();

  /// Runs operations from the front until `wanted` has ended or somebody else is running one; nothing where the
  /// transport cannot be interrupted, for then the caller could not keep its own deadline.
  void help(const Operation& wanted);

  void stop();
  bool wait_until_served(std::chrono::milliseconds patience);

  /// Makes queued and later operations end with `reason`, and the one under way as soon as the transport can.
  void fail(const std::string& reason) noexcept;

  /// Counts those who wait, so that the transport knows whether to spin.
  class Waiter {
   public:
    explicit Waiter(OperationQueue& queue) : queue_(queue) { queue_.waiters_.fetch_add(1, std::memory_order_relaxed); }
    ~Waiter() { queue_.waiters_.fetch_sub(1, std::memory_order_relaxed); }
    Waiter(const Waiter&) = delete;  // one count, one discount
    Waiter& operator=(const Waiter&) = delete;

   private:
    OperationQueue& queue_;
  };

 private:
  std::shared_ptr<Operation> take();
  void run_front(std::unique_lock<std::mutex>& lock);
  std::exception_ptr run(Operation& operation);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> queue_;
  std::atomic<int> waiters_ = 0;
  std::uint64_t submitted_ = 0;
  std::exception_ptr failure_;
  bool running_ = false;  // somebody is in the transport
  bool asleep_ = false;   // the communication thread has to be woken
  bool stopping_ = false;
  bool served_ = false;
};

}  // namespace libtrain::detail
