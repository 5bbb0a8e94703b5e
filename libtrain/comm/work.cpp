#include <libtrain/comm/work.hpp>

#include <chrono>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/operation.hpp>

namespace libtrain {

namespace {

// The communication thread notices a missed deadline first and knows more about it; this is for when it cannot.
constexpr auto kGrace = std::chrono::seconds(2);

}  // namespace

namespace detail {

void Operation::finish(std::exception_ptr outcome) {
  // Tensors are released before anyone who waits can go on to free or reuse them.
  body = nullptr;
  const std::lock_guard lock(mutex);
  done = true;
  failure = std::move(outcome);
  changed.notify_all();
}

bool Operation::is_done() {
  const std::lock_guard lock(mutex);
  return done;
}

void Operation::wait() {
  std::unique_lock lock(mutex);
  if (!done) {
    waiters->fetch_add(1, std::memory_order_relaxed);
    const auto latest = deadline.is_never() ? deadline.time_point() : deadline.time_point() + kGrace;
    const bool in_time = changed.wait_until(lock, latest, [this] { return done; });
    waiters->fetch_sub(1, std::memory_order_relaxed);
    if (!in_time) {
      throw CommunicationError(text(description, " (collective number ", sequence,
                                    ") is still stuck in the communication library after its deadline: a peer is "
                                    "stopped or unreachable. End the job and look at the other ranks' hosts."));
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace detail

void Work::wait() {
  if (operation_) operation_->wait();
}

bool Work::done() const {
  return !operation_ || operation_->is_done();
}

}  // namespace libtrain
