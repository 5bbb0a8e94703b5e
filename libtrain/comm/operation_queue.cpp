#include <libtrain/comm/operation_queue.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// Smaller operations are usually waited for at once, and then their caller runs them: waking the communication thread
// would cost both more than the operation.
constexpr std::size_t kWorthWaking = 64 << 10;
// How late the communication thread may be with an operation that nobody waits for, and how long it stays that alert
// after the last one.
constexpr std::chrono::microseconds kNap{50};
constexpr int kNaps = 20;

[[noreturn]] void throw_mismatch(HostTransport& transport, const Operation& operation, const Patience& patience) {
  constexpr std::size_t kCallLength = 160;
  const auto world_size = static_cast<std::size_t>(transport.world_size());
  const auto call = to_string(operation.call);
  std::vector<char> mine(kCallLength, '\0');
  std::memcpy(mine.data(), call.data(), std::min(call.size(), kCallLength - 1));
  std::vector<char> all(kCallLength * world_size);
  transport.all_gather(mine.data(), all.data(), kCallLength, patience);
  std::vector<std::string> calls;
  for (std::size_t rank = 0; rank < world_size; ++rank) calls.emplace_back(all.data() + rank * kCallLength);
  throw CommunicationError(text("The ranks called different collectives as number ", operation.sequence, ": ",
                                who_called_what(calls), ". Every rank must make the same calls in the same order."),
                           ErrorScope::all_ranks);
}

// LibTorch's errors end with where they were thrown, which no user of this library can make anything of.
std::string without_backtrace(const std::string& what) {
  return what.substr(0, what.find("\nException raised from"));
}

}  // namespace

void OperationQueue::submit(const std::shared_ptr<Operation>& operation, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  operation->sequence = submitted_++;
  operation->arrival.fingerprint = fingerprint(operation->call, operation->sequence);
  queue_.push_back(operation);
  if (asleep_ || bytes >= kWorthWaking || !transport->interruptible()) changed_.notify_all();
}

std::exception_ptr OperationQueue::run(Operation& operation) {
  if (auto failure = first_failure()) return failure;
  const auto failed = [&](const std::string& reason, ErrorScope scope) {
    keep(std::make_exception_ptr(CommunicationError(text(operation.name(), " failed: ", reason), scope)));
    // The peers may wait for this rank, and a foreign library for all of them. Where all found a mismatch together
    // nobody waits, and some may still be reading who called what.
    if (scope == ErrorScope::this_rank) transport->abort(reason);
  };
  try {
    const Patience patience{operation.deadline, &waiters_};
    if (!transport->arrive(operation.arrival, patience)) throw_mismatch(*transport, operation, patience);
    operation.body(*transport, patience);
    return nullptr;
  } catch (const Error& error) {
    failed(error.what(), error.scope());
  } catch (const std::exception& error) {
    failed(without_backtrace(error.what()), ErrorScope::this_rank);
  } catch (...) {
    failed("an exception that is not a std::exception", ErrorScope::this_rank);
  }
  return first_failure();
}

std::exception_ptr OperationQueue::first_failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void OperationQueue::keep(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
}

void OperationQueue::run_front(std::unique_lock<std::mutex>& lock) {
  const auto operation = std::move(queue_.front());
  queue_.pop_front();
  running_ = operation.get();
  lock.unlock();
  operation->finish(run(*operation));
  lock.lock();
  running_ = nullptr;
}

void OperationQueue::serve() {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return !running_ && !queue_.empty(); };
  const auto ready_or_over = [&] { return ready() || (stopping_ && !running_ && queue_.empty()); };
  for (int naps = 0;;) {
    if (ready()) {
      run_front(lock);
      naps = 0;
      continue;
    }
    if (stopping_ && !running_) break;
    const auto seen = submitted_;
    if (naps < kNaps) {
      changed_.wait_for(lock, kNap, ready_or_over);
      naps = submitted_ == seen ? naps + 1 : 0;
      continue;
    }
    asleep_ = true;
    changed_.wait(lock, [&] { return ready_or_over() || submitted_ != seen; });
    asleep_ = false;
    naps = 0;
  }
  served_ = true;
  changed_.notify_all();
}

void OperationQueue::help(const Operation& wanted) {
  if (!transport->interruptible()) return;
  std::unique_lock lock(mutex_);
  // Numbers grow along the queue: `wanted` is in it as long as its front is not younger.
  while (!running_ && !queue_.empty() && queue_.front()->sequence <= wanted.sequence && may_help(wanted)) {
    run_front(lock);
  }
  // What is left, and the end, are the communication thread's.
  if (asleep_ && (!queue_.empty() || stopping_)) changed_.notify_all();
}

// Whoever runs an operation leaves it at that operation's deadline, not at its own.
bool OperationQueue::may_help(const Operation& wanted) const {
  const auto& next = *queue_.front();
  return next.deadline.time_point() <= wanted.deadline.time_point() &&
         (next.call.kind != CallKind::split || transport->can_interrupt_split());
}

std::string OperationQueue::what_delays(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  if (running_ == nullptr || running_ == &operation) return {};
  return running_->deadline.time_point() > operation.deadline.time_point() ? running_->name() : std::string{};
}

void OperationQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

bool OperationQueue::wait_until_served(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [this] { return served_; });
}

void OperationQueue::fail(const std::string& reason) noexcept {
  std::deque<std::shared_ptr<Operation>> left;
  try {
    keep(std::make_exception_ptr(CommunicationError(reason)));
  } catch (...) {
    keep(std::current_exception());  // out of memory
  }
  {
    const std::lock_guard lock(mutex_);
    left.swap(queue_);
  }
  // The one under way ends when the transport lets it; nobody needs to wait for that to know how the others end.
  for (const auto& operation : left) operation->finish(first_failure());
  transport->abort(reason);
}

}  // namespace libtrain::detail
