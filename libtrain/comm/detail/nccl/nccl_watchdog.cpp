#include <libtrain/comm/detail/nccl/nccl_watchdog.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kPeriod{100};
constexpr std::chrono::milliseconds kGrace{2000};
constexpr std::chrono::milliseconds kDrainPeriod{1};
constexpr std::chrono::milliseconds kCloseTime{3000};

}  // namespace

struct NcclWatchdog::State {
  std::shared_ptr<WatchedComm> comm;
  std::shared_ptr<FirstFailure> failure;

  std::mutex mutex;
  std::condition_variable changed;
  OnFailure on_failure;
  std::deque<std::shared_ptr<DeviceOperation>> outstanding;
  Deadline drain = Deadline::never();
  std::uint64_t rounds = 0;  // of the watcher
  int threads = 2;           // that have not finished
  bool stopping = false;
  bool woken = false;

  std::mutex reporting;  // held during report()

  bool aborted = false;  // used by the watcher only

  void run_watcher() noexcept;
  bool rest();
  void check();
  void release_ended();
  void run_supervisor() noexcept;
  bool check_watcher();
  std::string overdue() const;
  void report(const std::string& reason) noexcept;
  void abort_after_report() noexcept;
  void wake() noexcept;
  void finish() noexcept;
};

void NcclWatchdog::State::run_watcher() noexcept {
  comm->enter_thread();
  while (rest()) {
    try {
      check();
    } catch (const std::exception& error) {
      report(error.what());
    }
    if (failure->exists() && !aborted) abort_after_report();
  }
  if (outstanding.empty() && !failure->exists()) {
    comm->close();
  } else if (!aborted) {
    abort_after_report();
  }
  finish();
}

// Returns false when there is nothing left to watch.
bool NcclWatchdog::State::rest() {
  std::unique_lock lock(mutex);
  ++rounds;
  changed.wait_for(lock, stopping ? kDrainPeriod : kPeriod, [this] { return woken; });
  woken = false;
  return !stopping || !(outstanding.empty() || aborted || drain.expired());
}

void NcclWatchdog::State::check() {
  release_ended();
  if (failure->exists()) return;
  if (const auto problem = comm->asynchronous_error(); !problem.empty()) return report(problem);
  std::unique_lock lock(mutex);
  const auto late = overdue();
  lock.unlock();
  if (late.empty()) return;
  report(text(late,
              " did not finish before its deadline: a peer did not call it, is stopped or unreachable. See the logs of "
              "the other ranks."));
}

// Operations finish in the order of the calls: all are on one stream.
void NcclWatchdog::State::release_ended() {
  std::unique_lock lock(mutex);
  while (!outstanding.empty()) {
    const auto oldest = outstanding.front();
    lock.unlock();
    if (!oldest->has_ended()) return;
    oldest->release();
    lock.lock();
    outstanding.pop_front();
  }
}

void NcclWatchdog::State::run_supervisor() noexcept {
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = check_watcher();
    } catch (const std::exception& error) {
      report(error.what());
    }
  }
  finish();
}

// Blocks for kGrace; returns false when the watchdog is being destroyed. Does not call the device, so that it cannot
// hang like the watcher.
bool NcclWatchdog::State::check_watcher() {
  std::unique_lock lock(mutex);
  const auto seen = rounds;
  if (changed.wait_for(lock, kGrace, [this] { return stopping; })) return false;
  if (rounds != seen || failure->exists()) return true;
  const auto late = overdue();
  lock.unlock();
  if (late.empty()) return true;
  report(text(late,
              " did not finish before its deadline, and the CUDA runtime has not responded for seconds: a peer did not "
              "call it, or another thread of this process is stuck in a CUDA call. See the logs of the other ranks."));
  return true;
}

// The name of an operation whose deadline has passed; empty if there is none. Call it with the mutex locked.
std::string NcclWatchdog::State::overdue() const {
  for (const auto& operation : outstanding) {
    if (operation->deadline().expired()) return operation->name();
  }
  return {};
}

void NcclWatchdog::State::report(const std::string& reason) noexcept {
  try {
    const std::lock_guard alone(reporting);
    if (!failure->set(reason)) return;
    std::unique_lock lock(mutex);
    const auto listener = on_failure;
    lock.unlock();
    if (listener) listener(reason);
  } catch (...) {
    // The failure is stored, and the communicator is aborted nevertheless.
  }
}

void NcclWatchdog::State::abort_after_report() noexcept {
  aborted = true;
  // The supervisor may have stored the failure and not reported it yet.
  {
    const std::lock_guard reported(reporting);
  }
  comm->abort();
}

void NcclWatchdog::State::wake() noexcept {
  const std::lock_guard lock(mutex);
  woken = true;
  changed.notify_all();
}

void NcclWatchdog::State::finish() noexcept {
  const std::lock_guard lock(mutex);
  --threads;
  changed.notify_all();
}

NcclWatchdog::NcclWatchdog(std::shared_ptr<WatchedComm> comm, std::shared_ptr<FirstFailure> failure,
                           OnFailure on_failure)
    : state_(std::make_shared<State>()) {
  state_->comm = std::move(comm);
  state_->failure = std::move(failure);
  state_->on_failure = std::move(on_failure);
  supervisor_ = std::thread([state = state_] { state->run_supervisor(); });
  try {
    watcher_ = std::thread([state = state_] { state->run_watcher(); });
  } catch (...) {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
    lock.unlock();
    supervisor_.join();
    throw;
  }
}

NcclWatchdog::~NcclWatchdog() {
  std::unique_lock lock(state_->mutex);
  const auto drain = drain_time();
  state_->drain = Deadline::after(drain);
  state_->stopping = true;
  state_->woken = true;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, drain + kCloseTime, [this] { return state_->threads == 0; });
  // The callback may refer to objects that do not outlive this one.
  const auto silenced = ended ? OnFailure{} : std::exchange(state_->on_failure, nullptr);
  lock.unlock();
  for (auto* thread : {&watcher_, &supervisor_}) {
    if (ended) {
      thread->join();
    } else {
      thread->detach();
    }
  }
}

void NcclWatchdog::watch(std::shared_ptr<DeviceOperation> operation) {
  const std::lock_guard lock(state_->mutex);
  state_->outstanding.push_back(std::move(operation));
}

void NcclWatchdog::fail(std::exception_ptr failure) noexcept {
  if (state_->failure->set(std::move(failure))) state_->wake();
}

}  // namespace libtrain::detail
