#include <libtrain/comm/operation.hpp>

#include <chrono>
#include <functional>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/operation_queue.hpp>

namespace libtrain::detail {

namespace {

// Whoever runs the operation notices a missed deadline first and knows more about it; this is for when it cannot.
constexpr auto kGrace = std::chrono::milliseconds(4500);

}  // namespace

std::string Operation::what() const {
  return label ? text(to_string(call), " for ", *label) : to_string(call);
}

std::uint64_t Operation::fingerprint() const {
  const auto hash = detail::fingerprint(call, sequence);
  return label ? hash ^ std::hash<std::string>{}(*label) : hash;
}

std::string Operation::name() const {
  return text(what(), " (collective number ", sequence, ")");
}

CollectiveRecord Operation::record() {
  CollectiveRecord record{.sequence = sequence, .what = what()};
  const std::lock_guard lock(mutex_);
  record.times = times_;
  if (done_) {
    record.state = failure_ ? CollectiveRecord::State::failed : CollectiveRecord::State::done;
  } else if (times_.began != WorkTimes::Clock::time_point{}) {
    record.state = CollectiveRecord::State::running;
  }
  return record;
}

void Operation::begin() {
  const std::lock_guard lock(mutex_);
  times_.began = Stopwatch::Clock::now();
}

void Operation::finish(std::exception_ptr outcome) {
  // Tensors are released before anyone who waits can go on to free or reuse them.
  body = nullptr;
  const std::lock_guard lock(mutex_);
  queue = nullptr;
  done_ = true;
  times_.ended = Stopwatch::Clock::now();
  failure_ = std::move(outcome);
  changed_.notify_all();
}

bool Operation::was_ignored() {
  const std::lock_guard lock(mutex_);
  return done_ && !failure_ && !asked_;
}

bool Operation::done() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
  return done_;
}

std::optional<WorkTimes> Operation::times() {
  const std::lock_guard lock(mutex_);
  return done_ ? std::optional{times_} : std::nullopt;
}

bool Operation::sleep_until(const Deadline& latest) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, latest.time_point(), [this] { return done_; });
}

void Operation::wait_for_its_end(OperationQueue& mine) {
  const OperationQueue::Waiter waiter{mine};
  mine.help(*this);
  if (sleep_until(deadline)) return;
  if (const auto older = mine.what_delays(*this); !older.empty()) {
    mine.fail(text(name(), " could not begin before its deadline: ", older, ", called before it, has not ended."));
  } else if (!sleep_until(deadline.later_by(kGrace))) {
    mine.fail(text(name(),
                   " is still stuck in the communication library after its deadline: a peer is stopped or unreachable. "
                   "End the job and look at the other ranks' hosts."));
  }
}

void Operation::wait() {
  std::shared_ptr<OperationQueue> mine;
  {
    const std::lock_guard lock(mutex_);
    asked_ = true;
    mine = queue;
  }
  if (mine) wait_for_its_end(*mine);
  std::unique_lock lock(mutex_);
  if (!done_) {
    lock.unlock();  // whoever holds the queue's mutex may want this one
    std::rethrow_exception(mine->first_failure());
  }
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace libtrain::detail
