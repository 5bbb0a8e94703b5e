#include <libtrain/comm/operation.hpp>

#include <chrono>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/operation_queue.hpp>

namespace libtrain::detail {

namespace {

// Whoever runs the operation notices a missed deadline first and knows more about it; this is for when it cannot.
constexpr auto kGrace = std::chrono::milliseconds(4500);

}  // namespace

std::string Operation::name() const {
  return text(to_string(call), " (collective number ", sequence, ")");
}

void Operation::finish(std::exception_ptr outcome) {
  // Tensors are released before anyone who waits can go on to free or reuse them.
  body = nullptr;
  const std::lock_guard lock(mutex_);
  queue = nullptr;
  done_ = true;
  failure_ = std::move(outcome);
  changed_.notify_all();
}

bool Operation::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

bool Operation::sleep() {
  std::unique_lock lock(mutex_);
  const auto latest = deadline.is_never() ? deadline.time_point() : deadline.time_point() + kGrace;
  return changed_.wait_until(lock, latest, [this] { return done_; });
}

void Operation::wait() {
  std::shared_ptr<OperationQueue> mine;
  {
    const std::lock_guard lock(mutex_);
    mine = queue;
  }
  if (mine) {
    const OperationQueue::Waiter waiter{*mine};
    mine->help(*this);
    if (!sleep()) {
      throw CommunicationError(text(name(),
                                    " is still stuck in the communication library after its deadline: a peer is "
                                    "stopped or unreachable. End the job and look at the other ranks' hosts."));
    }
  }
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace libtrain::detail
