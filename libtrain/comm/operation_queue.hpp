#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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

  ~OperationQueue();
  OperationQueue(const OperationQueue&) = delete;  // operations refer to their queue
  OperationQueue& operator=(const OperationQueue&) = delete;

  const std::unique_ptr<HostTransport> transport;
  const std::chrono::milliseconds timeout;

  /// Gives the operation its number. Throws the first failure if there was one.
  void submit(const std::shared_ptr<Operation>& operation);

  /// What the communication thread does: runs operations until `stop` has been called and none is left.
  void serve();

  /// Runs operations from the front until `wanted` has ended or somebody else is running one. Leaves to the
  /// communication thread what would keep the caller beyond the deadline of `wanted`.
  void help(const Operation& wanted);

  /// The name of the operation that runs instead of `operation` and may go on after its deadline; empty if none does.
  std::string what_delays(const Operation& operation);

  /// Null as long as there is none.
  std::exception_ptr first_failure();

  /// The last operations, oldest first.
  std::vector<CollectiveRecord> recent();

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
  bool is_ready() const { return running_ == nullptr && !queue_.empty(); }
  bool is_over() const { return stopping_ && running_ == nullptr && queue_.empty(); }
  void rest(std::unique_lock<std::mutex>& lock);
  void run_front(std::unique_lock<std::mutex>& lock);
  std::exception_ptr run(Operation& operation);
  void keep(std::exception_ptr failure);
  bool may_help(const Operation& wanted) const;
  std::shared_ptr<Operation> enqueue(const std::shared_ptr<Operation>& operation);
  void forget(const std::shared_ptr<Operation>& operation);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> queue_;
  std::deque<std::shared_ptr<Operation>> recent_;  // also those that have ended
  std::atomic<int> waiters_ = 0;
  std::uint64_t submitted_ = 0;
  std::exception_ptr failure_;
  const Operation* running_ = nullptr;  // in the transport; names and deadlines do not change any more
  int run_by_callers_ = 0;              // in a row, as far as it matters
  bool napping_ = false;                // the communication thread looks by itself before long
  bool has_warned_ = false;             // of an operation that was never waited for
  bool stopping_ = false;
  bool served_ = false;
};

}  // namespace libtrain::detail
