#include <libtrain/comm/detail/communication_thread.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/delayed_abort.hpp>
#include <libtrain/comm/detail/first_failure.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kAbortTime{1000};
// The thread that runs a collective notices a missed deadline first and reports more about it; this is the time that it
// has for that.
constexpr std::chrono::milliseconds kMissedDeadline{4500};
// After this number of collectives that callers ran because they waited for them at once, the next caller is expected
// to do the same: waking the communication thread would take a core from the ranks and cost more than a small
// collective.
constexpr int kCallersInARow = 3;
// The maximum delay of a collective for which no caller waits after all, and the number of polls without one after
// which the communication thread sleeps until it is woken.
constexpr std::chrono::microseconds kPollTime{500};
constexpr int kPolls = 4;
constexpr std::size_t kRemembered = 100;

// LibTorch's errors end with a backtrace, which does not help users of this library.
std::string without_backtrace(const std::string& what) {
  return what.substr(0, what.find("\nException raised from"));
}

// The ranks exchange their calls.
[[noreturn]] void throw_mismatch(HostTransport& transport, const std::string& call, std::uint64_t sequence,
                                 const WaitPolicy& policy) {
  constexpr std::size_t kCallLength = 160;
  const auto world_size = static_cast<std::size_t>(transport.world_size());
  std::vector<char> mine(kCallLength, '\0');
  std::memcpy(mine.data(), call.data(), std::min(call.size(), kCallLength - 1));
  std::vector<char> all(kCallLength * world_size);
  transport.all_gather(mine.data(), all.data(), kCallLength, policy);
  std::vector<std::string> calls;
  for (std::size_t rank = 0; rank < world_size; ++rank) calls.emplace_back(all.data() + rank * kCallLength);
  throw CommunicationError(text("The ranks called different collectives as number ", sequence, ": ",
                                who_called_what(calls), ". Every rank must make the same calls in the same order."),
                           ErrorScope::all_ranks);
}

}  // namespace

// One collective: its body, its deadline, and its outcome.
class CommunicationThread::Operation : public Pending {
 public:
  Operation(const Call& call, const Arrival& arrival, Deadline deadline, Body body, std::shared_ptr<Queue> queue,
            std::shared_ptr<const std::string> label)
      : call(call),
        arrival(arrival),
        deadline(deadline),
        label(std::move(label)),
        body(std::move(body)),
        queue(std::move(queue)) {
    times_.called = Stopwatch::Clock::now();
  }

  // Runs the operations before this one and this one itself on the calling thread if no thread has started them, and
  // sleeps otherwise.
  void wait() override;
  bool done() override;
  std::optional<WorkTimes> times() override;

  // "all_reduce of 10 float32 (sum) for bucket 3".
  std::string what() const;

  // The same with its number: "all_reduce of 10 float32 (sum) (collective number 7)".
  std::string name() const;

  // Equal on ranks that make the same call with the same label.
  std::uint64_t fingerprint() const;

  // begin() is called before it runs, finish() exactly once, with a null `outcome` for success.
  void begin();
  void finish(std::exception_ptr outcome);

  CollectiveRecord record();

  // Whether it has succeeded and no caller has asked for it. Once no Work refers to it, this is a mistake of the
  // caller.
  bool was_ignored();

  const Call call;
  Arrival arrival;  // submit() sets the fingerprint
  const Deadline deadline;
  std::uint64_t sequence = 0;
  const std::shared_ptr<const std::string> label;  // may be null
  Body body;                                       // null after it has run, like the queue
  std::shared_ptr<Queue> queue;

 private:
  bool sleep_until(const Deadline& latest);  // returns false if it has not finished by then
  void wait_until_done(Queue& mine);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool asked_ = false;  // wait() or done() was called
  WorkTimes times_;
  std::exception_ptr failure_;
};

// The state that the communication thread and the callers share.
class CommunicationThread::Queue {
 public:
  Queue(std::unique_ptr<HostTransport> transport, std::chrono::milliseconds timeout)
      : transport_(std::move(transport)), timeout_(timeout) {}
  ~Queue();
  Queue(const Queue&) = delete;  // operations refer to their queue
  Queue& operator=(const Queue&) = delete;

  HostTransport& transport() { return *transport_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Gives the operation its number. Throws the first failure if there was one.
  void submit(const std::shared_ptr<Operation>& operation);

  // The communication thread: runs operations until `stop` has been called and none is left.
  void serve();

  // Runs operations from the front until `wanted` has finished or another thread is running one. Leaves operations that
  // could block the caller beyond the deadline of `wanted` to the communication thread.
  void help(const Operation& wanted);

  // The name of the operation that is in the transport instead of `operation` and has a deadline later than
  // `ends_after`; std::nullopt if there is none.
  std::optional<std::string> what_runs_before(
      const Operation& operation, Stopwatch::Clock::time_point ends_after = Stopwatch::Clock::time_point::min());

  const FirstFailure& failure() const { return failure_; }
  std::vector<CollectiveRecord> recent();

  void stop();
  bool wait_until_served(std::chrono::milliseconds limit);

  // Makes queued and later operations fail with `reason`, and the running one as soon as the transport can.
  void fail(const std::string& reason) noexcept;

  // Counts waiting threads, so that the transport knows whether to spin.
  class Waiter {
   public:
    explicit Waiter(Queue& queue) : queue_(queue) { queue_.waiters_.fetch_add(1, std::memory_order_relaxed); }
    ~Waiter() { queue_.waiters_.fetch_sub(1, std::memory_order_relaxed); }
    Waiter(const Waiter&) = delete;  // one decrement for one increment
    Waiter& operator=(const Waiter&) = delete;

   private:
    Queue& queue_;
  };

 private:
  bool is_ready() const { return running_ == nullptr && !queue_.empty(); }
  bool is_over() const { return stopping_ && running_ == nullptr && queue_.empty(); }
  void rest(std::unique_lock<std::mutex>& lock);
  void run_front(std::unique_lock<std::mutex>& lock);
  std::exception_ptr run(Operation& operation);
  bool may_help(const Operation& wanted) const;
  std::shared_ptr<Operation> enqueue(const std::shared_ptr<Operation>& operation);
  void forget(const std::shared_ptr<Operation>& operation);

  const std::unique_ptr<HostTransport> transport_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> queue_;
  std::deque<std::shared_ptr<Operation>> recent_;  // including finished ones
  std::atomic<int> waiters_ = 0;
  std::uint64_t submitted_ = 0;
  FirstFailure failure_;
  const Operation* running_ = nullptr;    // in the transport; its name and deadline do not change
  int run_by_callers_ = 0;                // in a row, at most kCallersInARow
  bool polling_ = false;                  // the communication thread polls the queue
  std::atomic<bool> has_warned_ = false;  // about an operation that was never waited for
  bool stopping_ = false;
  bool served_ = false;
};

std::string CommunicationThread::Operation::what() const {
  return label ? text(to_string(call), " for ", *label) : to_string(call);
}

std::uint64_t CommunicationThread::Operation::fingerprint() const {
  const auto hash = detail::fingerprint(call, sequence);
  return label ? hash ^ std::hash<std::string>{}(*label) : hash;
}

std::string CommunicationThread::Operation::name() const {
  return text(what(), " (collective number ", sequence, ")");
}

CollectiveRecord CommunicationThread::Operation::record() {
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

void CommunicationThread::Operation::begin() {
  const std::lock_guard lock(mutex_);
  times_.began = Stopwatch::Clock::now();
}

void CommunicationThread::Operation::finish(std::exception_ptr outcome) {
  // Releases the tensors before a waiting thread can continue and free or reuse them.
  body = nullptr;
  const std::lock_guard lock(mutex_);
  queue = nullptr;
  done_ = true;
  times_.ended = Stopwatch::Clock::now();
  failure_ = std::move(outcome);
  changed_.notify_all();
}

bool CommunicationThread::Operation::was_ignored() {
  const std::lock_guard lock(mutex_);
  return done_ && !failure_ && !asked_;
}

bool CommunicationThread::Operation::done() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
  return done_;
}

std::optional<WorkTimes> CommunicationThread::Operation::times() {
  const std::lock_guard lock(mutex_);
  return done_ ? std::optional{times_} : std::nullopt;
}

bool CommunicationThread::Operation::sleep_until(const Deadline& latest) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, latest.time_point(), [this] { return done_; });
}

void CommunicationThread::Operation::wait_until_done(Queue& mine) {
  const Queue::Waiter waiter{mine};
  mine.help(*this);
  if (sleep_until(deadline)) return;
  // An operation without a later deadline fails with its own error.
  const bool is_blocked = mine.what_runs_before(*this, deadline.time_point()).has_value();
  if (!is_blocked && sleep_until(deadline.later_by(kMissedDeadline))) return;
  if (const auto older = mine.what_runs_before(*this)) {
    mine.fail(text(name(), " did not start before its deadline, because ", *older,
                   " was called before it and has not finished. Look at the error of that collective."));
  } else {
    mine.fail(text(name(),
                   " is still stuck in the communication library after its deadline, because a peer is stopped or "
                   "unreachable. End the job, and check the hosts of the other ranks."));
  }
}

void CommunicationThread::Operation::wait() {
  std::shared_ptr<Queue> mine;
  {
    const std::lock_guard lock(mutex_);
    asked_ = true;
    mine = queue;
  }
  if (mine) wait_until_done(*mine);
  std::unique_lock lock(mutex_);
  if (!done_) {
    lock.unlock();  // a thread that holds the queue's mutex may lock this one
    mine->failure().throw_if_any();
  }
  if (failure_) std::rethrow_exception(failure_);
}

CommunicationThread::Queue::~Queue() {
  for (const auto& operation : recent_) forget(operation);
}

// The last owner of an operation checks whether its result may have been used too early. Warns once, since a loop
// repeats the mistake.
void CommunicationThread::Queue::forget(const std::shared_ptr<Operation>& operation) {
  if (!operation || has_warned_ || operation.use_count() > 1 || !operation->was_ignored()) return;
  if (std::uncaught_exceptions() > 0) return;  // a step that fails does not wait for its collectives
  if (has_warned_.exchange(true)) return;
  log_warning(text(operation->name(),
                   " was never waited for: it is asynchronous, and its tensors may have been read or ",
                   "changed before it had finished. Call wait() on the Work that it returns."));
}

void CommunicationThread::Queue::submit(const std::shared_ptr<Operation>& operation) {
  forget(enqueue(operation));
}

// Returns the operation that recent_ no longer holds, or null.
std::shared_ptr<CommunicationThread::Operation> CommunicationThread::Queue::enqueue(
    const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_any();
  operation->sequence = submitted_++;
  operation->arrival.fingerprint = operation->fingerprint();
  queue_.push_back(operation);
  recent_.push_back(operation);
  if (!polling_) changed_.notify_all();
  if (recent_.size() <= kRemembered) return nullptr;
  auto oldest = std::move(recent_.front());
  recent_.pop_front();
  return oldest;
}

std::exception_ptr CommunicationThread::Queue::run(Operation& operation) {
  if (failure_.exists()) return failure_.get();
  const auto failed = [&](const std::string& reason, ErrorScope scope) {
    failure_.set(std::make_exception_ptr(CommunicationError(text(operation.name(), " failed: ", reason), scope)));
    // The peers may wait for this rank, and a communication library for all of them. After a mismatch on all ranks no
    // rank waits, and some may still be reading who called what.
    if (scope == ErrorScope::this_rank) transport_->abort(reason);
  };
  try {
    const WaitPolicy policy{operation.deadline, &waiters_};
    if (!transport_->arrive(operation.arrival, policy))
      throw_mismatch(*transport_, operation.what(), operation.sequence, policy);
    operation.body(*transport_, policy);
    return nullptr;
  } catch (const Error& error) {
    failed(error.what(), error.scope());
  } catch (const std::exception& error) {
    failed(without_backtrace(error.what()), ErrorScope::this_rank);
  } catch (...) {
    failed("an exception that is not a std::exception", ErrorScope::this_rank);
  }
  return failure_.get();
}

void CommunicationThread::Queue::run_front(std::unique_lock<std::mutex>& lock) {
  const auto operation = std::move(queue_.front());
  queue_.pop_front();
  running_ = operation.get();
  lock.unlock();
  operation->begin();
  operation->finish(run(*operation));
  lock.lock();
  running_ = nullptr;
}

void CommunicationThread::Queue::serve() {
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

void CommunicationThread::Queue::rest(std::unique_lock<std::mutex>& lock) {
  auto seen = submitted_;
  const auto has_news = [&] { return is_ready() || is_over() || submitted_ != seen; };
  for (int polls = 0; run_by_callers_ >= kCallersInARow && polls < kPolls; ++polls) {
    polling_ = true;
    changed_.wait_for(lock, kPollTime);
    polling_ = false;
    if (has_news()) return;
  }
  changed_.wait(lock, has_news);
}

void CommunicationThread::Queue::help(const Operation& wanted) {
  if (!transport_->interruptible()) return;
  std::unique_lock lock(mutex_);
  // Numbers grow along the queue: `wanted` is in it as long as the front has no larger number.
  while (!running_ && !queue_.empty() && queue_.front()->sequence <= wanted.sequence && may_help(wanted)) {
    run_front(lock);
    run_by_callers_ = std::min(run_by_callers_ + 1, kCallersInARow);
  }
  // The communication thread runs the remaining operations, and ends when there are none.
  if (!queue_.empty() || stopping_) changed_.notify_all();
}

// A thread that runs an operation is blocked until that operation's deadline, not until its own.
bool CommunicationThread::Queue::may_help(const Operation& wanted) const {
  return queue_.front()->deadline.time_point() <= wanted.deadline.time_point();
}

std::optional<std::string> CommunicationThread::Queue::what_runs_before(const Operation& operation,
                                                                        Stopwatch::Clock::time_point ends_after) {
  const std::lock_guard lock(mutex_);
  if (running_ == nullptr || running_ == &operation || running_->deadline.time_point() <= ends_after) return {};
  return running_->name();
}

std::vector<CollectiveRecord> CommunicationThread::Queue::recent() {
  std::deque<std::shared_ptr<Operation>> operations;
  {
    const std::lock_guard lock(mutex_);
    operations = recent_;
  }
  std::vector<CollectiveRecord> records;
  for (const auto& operation : operations) records.push_back(operation->record());
  return records;
}

void CommunicationThread::Queue::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

bool CommunicationThread::Queue::wait_until_served(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return served_; });
}

void CommunicationThread::Queue::fail(const std::string& reason) noexcept {
  std::deque<std::shared_ptr<Operation>> left;
  failure_.set(reason);
  has_warned_ = true;  // that no caller waits is not the mistake
  {
    const std::lock_guard lock(mutex_);
    left.swap(queue_);
  }
  // The running operation ends when the transport returns; the others fail at once.
  for (const auto& operation : left) operation->finish(failure_.get());
  transport_->abort(reason);
}

CommunicationThread::CommunicationThread(std::unique_ptr<HostTransport> transport, std::chrono::milliseconds timeout)
    : queue_(std::make_shared<Queue>(std::move(transport), timeout)) {}

CommunicationThread::~CommunicationThread() {
  const bool reports_first = std::uncaught_exceptions() > 0 && !queue_->failure().exists();
  try {
    if (!thread_.joinable()) start();
  } catch (...) {  // no thread can be created, and no caller waits
    queue_->fail("the communication thread could not be started");
    return;
  }
  queue_->stop();
  bool served = queue_->wait_until_served(drain_time());
  if (reports_first) {
    abort_after_report(
        [queue = queue_] { queue->fail("its program has thrown an exception. See the log of that rank."); });
  } else if (!served) {
    queue_->fail("the communicator was destroyed while collectives were pending");
    served = queue_->wait_until_served(kAbortTime);
  }
  if (served) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void CommunicationThread::start() {
  thread_ = std::thread{[queue = queue_] { queue->serve(); }};
}

const HostTransport& CommunicationThread::transport() const {
  return queue_->transport();
}

std::chrono::milliseconds CommunicationThread::timeout() const {
  return queue_->timeout();
}

Work CommunicationThread::submit(const Call& call, const Details& details, Body body) {
  auto operation = std::make_shared<Operation>(call, Arrival{.input = details.input, .output = details.output},
                                               Deadline::after(details.timeout.value_or(timeout())), std::move(body),
                                               queue_, label_);
  queue_->submit(operation);
  return Work{std::move(operation)};
}

void CommunicationThread::throw_if_failed() const {
  queue_->failure().throw_if_any();
}

std::vector<CollectiveRecord> CommunicationThread::recent() const {
  return queue_->recent();
}

void CommunicationThread::abort(const std::string& reason, ExitCode code) noexcept {
  static const std::string default_reason = "the communicator was aborted";
  const auto& given = reason.empty() ? default_reason : reason;
  queue_->fail(given);
  queue_->transport().end_job(given, code);
}

std::shared_ptr<void> CommunicationThread::allocate(std::size_t bytes) {
  return queue_->transport().allocate(bytes);
}

}  // namespace libtrain::detail
