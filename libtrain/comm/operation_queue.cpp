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

// Ranks grouped by what they called, so that a thousand ranks still give a message one can read.
[[noreturn]] void throw_mismatch(HostTransport& transport, const Operation& operation, const Patience& patience) {
  constexpr std::size_t kCallLength = 160;
  const auto world_size = static_cast<std::size_t>(transport.world_size());
  const auto call = to_string(operation.call);
  std::vector<char> mine(kCallLength, '\0');
  std::memcpy(mine.data(), call.data(), std::min(call.size(), kCallLength - 1));
  std::vector<char> all(kCallLength * world_size);
  transport.all_gather(mine.data(), all.data(), kCallLength, patience);
  const auto call_of = [&](std::size_t rank) { return std::string{all.data() + rank * kCallLength}; };
  std::vector<std::string> parts;
  for (std::size_t first = 0, last = 0; first < world_size; first = last + 1) {
    for (last = first; last + 1 < world_size && call_of(last + 1) == call_of(first);) ++last;
    const auto ranks = first == last ? text("rank ", first) : text("ranks ", first, " to ", last);
    parts.push_back(text(ranks, " called ", call_of(first)));
  }
  throw CommunicationError(text("The ranks called different collectives as number ", operation.sequence, ": ",
                                join(parts, "; "), ". Every rank must make the same calls in the same order."),
                           ErrorScope::all_ranks);
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
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return failure_;
  }
  std::exception_ptr outcome;
  try {
    const Patience patience{operation.deadline, &waiters_};
    if (!transport->arrive(operation.arrival, patience)) throw_mismatch(*transport, operation, patience);
    operation.body(*transport, patience);
  } catch (const CommunicationError& error) {
    outcome =
        std::make_exception_ptr(CommunicationError(text(operation.name(), " failed: ", error.what()), error.scope()));
  } catch (...) {
    outcome = std::current_exception();
  }
  if (outcome) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = outcome;
    outcome = failure_;
  }
  return outcome;
}

void OperationQueue::run_front(std::unique_lock<std::mutex>& lock) {
  const auto operation = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  lock.unlock();
  operation->finish(run(*operation));
  lock.lock();
  running_ = false;
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
  while (!running_ && !queue_.empty() && queue_.front()->sequence <= wanted.sequence) run_front(lock);
  // What is left, and the end, are the communication thread's.
  if (asleep_ && (!queue_.empty() || stopping_)) changed_.notify_all();
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
  try {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::make_exception_ptr(CommunicationError(reason));
  } catch (...) {
    // Out of memory: the transport below still ends what is under way.
  }
  transport->abort(reason);
}

}  // namespace libtrain::detail
