#include <libtrain/comm/nccl/nccl_watchdog.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kPeriod{100};
constexpr std::chrono::milliseconds kDrainPeriod{1};
constexpr std::chrono::milliseconds kDrainTime{5000};
constexpr std::chrono::milliseconds kUnwindTime{200};
constexpr std::chrono::milliseconds kCloseTime{3000};

}  // namespace

struct NcclWatchdog::State {
  std::shared_ptr<WatchedComm> comm;
  std::shared_ptr<FirstFailure> failure;
  OnFailure on_failure;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<DeviceOperation>> outstanding;
  Deadline drain = Deadline::never();
  bool stopping = false;
  bool woken = false;
  bool exited = false;

  bool aborted = false;  // the thread's own

  void loop() noexcept;
  bool rest();
  void look();
  void release_ended();
  std::string overdue();
  void tell(const std::string& reason) noexcept;
  void wake() noexcept;
};

void NcclWatchdog::State::loop() noexcept {
  while (rest()) {
    try {
      look();
    } catch (const std::exception& error) {
      tell(error.what());
    }
    if (failure->exists() && !aborted) {
      aborted = true;
      comm->abort();
    }
  }
  if (outstanding.empty() && !failure->exists()) {
    comm->close();
  } else if (!aborted) {
    comm->abort();
  }
  const std::lock_guard lock(mutex);
  exited = true;
  changed.notify_all();
}

// False when there is nothing left to look after.
bool NcclWatchdog::State::rest() {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stopping ? kDrainPeriod : kPeriod, [this] { return woken; });
  woken = false;
  return !stopping || !(outstanding.empty() || aborted || drain.expired());
}

void NcclWatchdog::State::look() {
  release_ended();
  if (failure->exists()) return;
  auto problem = comm->asynchronous_error();
  if (problem.empty()) problem = overdue();
  if (!problem.empty()) tell(problem);
}

// They end in the order in which they were called: all are on one stream.
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

std::string NcclWatchdog::State::overdue() {
  const std::lock_guard lock(mutex);
  for (const auto& operation : outstanding) {
    if (!operation->deadline().expired()) continue;
    return text(operation->name(),
                " did not end before its deadline: a peer did not come to it, is stopped or unreachable. Look at what "
                "the other ranks report.");
  }
  return {};
}

void NcclWatchdog::State::tell(const std::string& reason) noexcept {
  try {
    if (!failure->set(std::make_exception_ptr(CommunicationError(reason)))) return;
    if (on_failure) on_failure(reason);
  } catch (...) {
    // The failure is stored, and the communicator is aborted all the same.
  }
}

void NcclWatchdog::State::wake() noexcept {
  const std::lock_guard lock(mutex);
  woken = true;
  changed.notify_all();
}

NcclWatchdog::NcclWatchdog(std::shared_ptr<WatchedComm> comm, std::shared_ptr<FirstFailure> failure,
                           OnFailure on_failure)
    : state_(std::make_shared<State>()) {
  state_->comm = std::move(comm);
  state_->failure = std::move(failure);
  state_->on_failure = std::move(on_failure);
  thread_ = std::thread([state = state_] { state->loop(); });
}

NcclWatchdog::~NcclWatchdog() {
  std::unique_lock lock(state_->mutex);
  // When an exception unwinds, the peers may never come to what still runs.
  const auto patience = std::uncaught_exceptions() > 0 ? kUnwindTime : kDrainTime;
  state_->drain = Deadline::after(patience);
  state_->stopping = true;
  state_->woken = true;
  state_->changed.notify_all();
  const bool exited = state_->changed.wait_for(lock, patience + kCloseTime, [this] { return state_->exited; });
  lock.unlock();
  if (exited) {
    thread_.join();
  } else {
    thread_.detach();
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
