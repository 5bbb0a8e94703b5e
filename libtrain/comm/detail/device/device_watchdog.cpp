#include <libtrain/comm/detail/device/device_watchdog.hpp>

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

std::string DeviceOperation::what() const {
  const auto& [call, device, sequence, label] = identity_;
  const auto where = device.empty() ? std::string{} : text(" on ", device);
  return text(to_string(call), where, label ? " for " : "", label ? *label : "");
}

std::string DeviceOperation::name() const {
  return text(what(), " (collective number ", sequence(), ")");
}

struct DeviceWatchdog::State {
  std::shared_ptr<WatchedComm> comm;
  std::shared_ptr<FirstFailure> failure;

  std::mutex mutex;
  std::condition_variable changed;
  OnFailure on_failure;
  std::deque<std::shared_ptr<DeviceOperation>> outstanding;
  std::uint64_t watched = 0;  // operations so far; all but the outstanding ones have been released
  struct Retired {
    std::uint64_t after = 0;  // as many operations may use the memory
    std::shared_ptr<RetiredMemory> memory;
  };
  std::deque<Retired> retired;
  Deadline drain = Deadline::never();
  std::uint64_t rounds = 0;  // of the watcher
  int threads = 2;           // that have not finished
  bool stopping = false;
  bool leaves = false;  // does not close the communicator at the end
  bool woken = false;

  std::mutex reporting;  // held during report()

  bool aborted = false;  // used by the watcher only

  void run_watcher() noexcept;
  bool rest();
  void check();
  void release_ended();
  void free_retired();
  void end_comm();
  void run_supervisor() noexcept;
  bool check_watcher();
  std::string overdue() const;
  void report(const std::string& reason) noexcept;
  void abort_after_report() noexcept;
  void wake() noexcept;
  void finish() noexcept;
};

void DeviceWatchdog::State::run_watcher() noexcept {
  comm->enter_thread();
  while (rest()) {
    try {
      check();
    } catch (const std::exception& error) {
      report(comm->describe(error));
    }
    if (failure->exists() && !aborted) abort_after_report();
  }
  end_comm();
  finish();
}

void DeviceWatchdog::State::end_comm() {
  std::unique_lock lock(mutex);
  const bool is_idle = outstanding.empty() && !failure->exists();
  const bool closes = !leaves;
  lock.unlock();
  if (!is_idle) {
    if (!aborted) abort_after_report();
  } else if (closes) {
    comm->close();
  } else {
    comm->leave();
  }
}

// Returns false when there is nothing left to watch.
bool DeviceWatchdog::State::rest() {
  std::unique_lock lock(mutex);
  ++rounds;
  changed.wait_for(lock, stopping ? kDrainPeriod : kPeriod, [this] { return woken; });
  woken = false;
  return !stopping || !(outstanding.empty() || aborted || drain.expired());
}

void DeviceWatchdog::State::check() {
  release_ended();
  free_retired();
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
void DeviceWatchdog::State::release_ended() {
  std::unique_lock lock(mutex);
  while (!outstanding.empty()) {
    const auto oldest = outstanding.front();
    lock.unlock();
    if (aborted) oldest->note_abort();
    if (!oldest->has_ended()) return;
    oldest->release();
    lock.lock();
    outstanding.pop_front();
  }
}

void DeviceWatchdog::State::free_retired() {
  std::unique_lock lock(mutex);
  const auto released = watched - outstanding.size();
  std::deque<Retired> candidates;
  while (!retired.empty() && retired.front().after <= released) {
    candidates.push_back(std::move(retired.front()));
    retired.pop_front();
  }
  lock.unlock();
  std::erase_if(candidates, [](const Retired& one) { return one.memory->is_unused(); });
  lock.lock();
  retired.insert(retired.begin(), candidates.begin(), candidates.end());
}

void DeviceWatchdog::State::run_supervisor() noexcept {
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
bool DeviceWatchdog::State::check_watcher() {
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
std::string DeviceWatchdog::State::overdue() const {
  for (const auto& operation : outstanding) {
    if (operation->deadline().expired()) return operation->name();
  }
  return {};
}

void DeviceWatchdog::State::report(const std::string& reason) noexcept {
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

void DeviceWatchdog::State::abort_after_report() noexcept {
  aborted = true;
  // The supervisor may have stored the failure and not reported it yet.
  {
    const std::lock_guard reported(reporting);
  }
  comm->abort();
}

void DeviceWatchdog::State::wake() noexcept {
  const std::lock_guard lock(mutex);
  woken = true;
  changed.notify_all();
}

void DeviceWatchdog::State::finish() noexcept {
  const std::lock_guard lock(mutex);
  --threads;
  changed.notify_all();
}

DeviceWatchdog::DeviceWatchdog(std::shared_ptr<WatchedComm> comm, std::shared_ptr<FirstFailure> failure,
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

DeviceWatchdog::~DeviceWatchdog() {
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

void DeviceWatchdog::watch(std::shared_ptr<DeviceOperation> operation) {
  const std::lock_guard lock(state_->mutex);
  state_->outstanding.push_back(std::move(operation));
  ++state_->watched;
}

void DeviceWatchdog::fail(std::exception_ptr failure) noexcept {
  if (state_->failure->set(std::move(failure))) state_->wake();
}

void DeviceWatchdog::leave_at_end() noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->leaves = true;
}

std::function<void(std::shared_ptr<RetiredMemory>)> DeviceWatchdog::retire() const {
  return [weak = std::weak_ptr{state_}](std::shared_ptr<RetiredMemory> memory) {
    const auto state = weak.lock();
    if (state == nullptr) return;
    const std::lock_guard lock(state->mutex);
    state->retired.push_back({state->watched, std::move(memory)});
  };
}

}  // namespace libtrain::detail
