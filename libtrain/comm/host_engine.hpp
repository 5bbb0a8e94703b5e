#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <libtrain/comm/host_transport.hpp>
#include <libtrain/comm/operation.hpp>
#include <libtrain/comm/operation_queue.hpp>
#include <libtrain/comm/work.hpp>

namespace libtrain::detail {

/// A transport, the queue of its operations, and the communication thread that runs them while their callers compute.
class HostEngine {
 public:
  HostEngine(std::unique_ptr<HostTransport> transport, std::chrono::milliseconds timeout);

  /// Lets queued operations end for a few seconds, then aborts the transport. Never blocks for longer than that: a
  /// thread stuck in a foreign library is left behind with everything it may touch.
  ~HostEngine();

  HostEngine(const HostEngine&) = delete;  // the thread refers to the queue
  HostEngine& operator=(const HostEngine&) = delete;

  const HostTransport& transport() const { return *queue_->transport; }
  std::chrono::milliseconds timeout() const { return queue_->timeout; }

  /// What a collective is given besides the call itself: the buffers that its transport will see, and a
  /// bound of its own.
  struct Details {
    const void* input = nullptr;
    void* output = nullptr;
    std::optional<std::chrono::milliseconds> timeout = {};
  };

  /// Queues `body`. Throws the first failure if there was one.
  Work submit(const Call& call, const Details& details, Operation::Body body);

  /// Throws the first failure if there was one.
  void throw_if_failed() const {
    if (const auto failure = queue_->first_failure()) std::rethrow_exception(failure);
  }

  /// See Communicator. By the thread that submits.
  std::shared_ptr<const std::string> label_calls(std::shared_ptr<const std::string> label) {
    return std::exchange(label_, std::move(label));
  }
  std::vector<CollectiveRecord> recent() const { return queue_->recent(); }

  void abort(const std::string& reason, ExitCode code) noexcept;

  std::shared_ptr<void> allocate(std::size_t bytes) { return queue_->transport->allocate(bytes); }

 private:
  std::shared_ptr<OperationQueue> queue_;
  std::thread thread_;
  std::shared_ptr<const std::string> label_;
};

}  // namespace libtrain::detail
