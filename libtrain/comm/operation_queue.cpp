#include <libtrain/comm/operation_queue.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// After so many operations whose callers waited for them at once, and so ran them, the next caller is expected to do
// the same: waking the communication thread would take a processor from the ranks and cost more than a small operation.
constexpr int kHabit = 3;
// How late the communication thread may be with the first operation that nobody waits for after all, and after how many
// naps without an operation it has to be woken for the next.
constexpr std::chrono::microseconds kNap{500};
constexpr int kNaps = 4;
constexpr std::size_t kRemembered = 100;

[[noreturn]] void throw_mismatch(HostTransport& transport, const Operation& operation, const Patience& patience) {
  constexpr std::size_t kCallLength = 160;
  const auto world_size = static_cast<std::size_t>(transport.world_size());
  const auto call = operation.what();
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

OperationQueue::~OperationQueue() {
  for (const auto& operation : recent_) forget(operation);
}

// The last one to know an operation finds out whether its result was used too early: once, for a loop repeats it.
void OperationQueue::forget(const std::shared_ptr<Operation>& operation) {
  if (!operation || has_warned_ || operation.use_count() > 1 || !operation->was_ignored()) return;
  if (std::uncaught_exceptions() > 0) return;  // a step that failed half-way waits for nothing
  has_warned_ = true;
  log_warning(text(operation->name(),
                   " was never waited for: it is asynchronous, and its tensors may have been read or ",
                   "changed before it had ended. Call wait() on the Work that it returns."));
}

void OperationQueue::submit(const std::shared_ptr<Operation>& operation) {
  forget(enqueue(operation));
}

// Returns the operation that is too old to be remembered, or null.
std::shared_ptr<Operation> OperationQueue::enqueue(const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  operation->sequence = submitted_++;
  operation->arrival.fingerprint = operation->fingerprint();
  queue_.push_back(operation);
  recent_.push_back(operation);
  if (!napping_) changed_.notify_all();
  if (recent_.size() <= kRemembered) return nullptr;
  auto oldest = std::move(recent_.front());
  recent_.pop_front();
  return oldest;
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
  operation->begin();
  operation->finish(run(*operation));
  lock.lock();
  running_ = nullptr;
}

void OperationQueue::serve() {
  std::unique_lock lock(mutex_);
  while (!is_over()) {
    if (!is_ready()) {
      rest(lock);
      continue;
    }
    if (waiters_.load(std::memory_order_relaxed) == 0) run_by_callers_ = 0;
    run_front(lock);
  }
  served_ = true;
  changed_.notify_all();
}

void OperationQueue::rest(std::unique_lock<std::mutex>& lock) {
  auto seen = submitted_;
  const auto has_news = [&] { return is_ready() || is_over() || submitted_ != seen; };
  for (int naps = 0; run_by_callers_ >= kHabit && naps < kNaps; ++naps) {
    napping_ = true;
    changed_.wait_for(lock, kNap);
    napping_ = false;
    if (has_news()) return;
  }
  changed_.wait(lock, has_news);
}

void OperationQueue::help(const Operation& wanted) {
  if (!transport->interruptible()) return;
  std::unique_lock lock(mutex_);
  // Numbers grow along the queue: `wanted` is in it as long as its front is not younger.
  while (!running_ && !queue_.empty() && queue_.front()->sequence <= wanted.sequence && may_help(wanted)) {
    run_front(lock);
    run_by_callers_ = std::min(run_by_callers_ + 1, kHabit);
  }
  // What is left, and the end, are the communication thread's.
  if (!queue_.empty() || stopping_) changed_.notify_all();
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

std::vector<CollectiveRecord> OperationQueue::recent() {
  std::deque<std::shared_ptr<Operation>> operations;
  {
    const std::lock_guard lock(mutex_);
    operations = recent_;
  }
  std::vector<CollectiveRecord> records;
  for (const auto& operation : operations) records.push_back(operation->record());
  return records;
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
