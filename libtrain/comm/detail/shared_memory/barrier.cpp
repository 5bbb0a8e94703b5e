#include <libtrain/comm/detail/shared_memory/barrier.hpp>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <ctime>
#include <thread>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

using std::chrono::microseconds;

constexpr microseconds kSpinTime{40};
constexpr microseconds kShortSpinTime{1};
constexpr std::chrono::milliseconds kSlice{100};
constexpr int kLooksPerClockReading = 8;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How many threads can run at the same time, also where a container may have less time than the machine has.
int processors() {
  const auto all = static_cast<double>(std::thread::hardware_concurrency());
  return static_cast<int>(std::ceil(std::min(all, cpu_quota().value_or(all))));
}

// Sleeps until a peer wakes `word`, for at most `timeout`, unless `word` has another value than `expected` already.
// Across processes: std::atomic's own wait is for the threads of one. May return early.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds timeout) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Counted while it may fall asleep, so that no rank wakes others for nothing.
class Sleeper {
 public:
  explicit Sleeper(std::atomic<std::uint32_t>& sleepers) : sleepers_(sleepers) { ++sleepers_; }
  ~Sleeper() { --sleepers_; }
  Sleeper(const Sleeper&) = delete;  // one decrement for one increment
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  std::atomic<std::uint32_t>& sleepers_;
};

}  // namespace

Barrier::Barrier(SharedState& state, const PeerProcesses& processes, int rank, int world_size)
    : state_(state),
      processes_(processes),
      rank_(rank),
      world_size_(world_size),
      is_crowded_(world_size > processors()) {}

void Barrier::meet(MeetingKind kind, const WaitPolicy& policy) {
  auto& slot = state_.slot(rank_, meeting_ + 1);
  slot.showing.kind = kind;
  arrive(slot, policy);
}

void Barrier::show(const Showing& showing, const WaitPolicy& policy) {
  auto& slot = state_.slot(rank_, meeting_ + 1);
  slot.showing = showing;
  arrive(slot, policy);
}

void Barrier::arrive(Slot& slot, const WaitPolicy& policy) {
  throw_if_failed();
  ++meeting_;
  first_missing_ = 0;
  // Sequentially consistent, like all accesses to `arrived` and `sleepers`: of ranks that arrive at the same time at
  // least one sees all others, and it sees who sleeps.
  slot.processor.store(sched_getcpu(), std::memory_order_relaxed);
  slot.arrived = meeting_;
  if (all_have_arrived()) {
    if (state_.sleepers != 0) wake_sleepers();
  } else if (!spin(policy)) {
    sleep(policy);
  }
  check_kinds();
}

const Showing& Barrier::showing(int rank) const {
  return state_.slot(rank, meeting_).showing;
}

bool Barrier::has_arrived(int rank) const {
  return state_.slot(rank, meeting_).arrived == meeting_;
}

bool Barrier::all_have_arrived() {
  while (first_missing_ < world_size_ && has_arrived(first_missing_)) ++first_missing_;
  return first_missing_ == world_size_;
}

bool Barrier::spin(const WaitPolicy& policy) {
  const auto start = Stopwatch::Clock::now();
  while (true) {
    for (int look = 0; look < kLooksPerClockReading; ++look) {
      if (all_have_arrived()) return true;
      relax();
    }
    throw_if_failed();
    if (Stopwatch::Clock::now() - start >= (worth_spinning(policy) ? kSpinTime : kShortSpinTime)) return false;
  }
}

bool Barrier::worth_spinning(const WaitPolicy& policy) const {
  if (is_crowded_ || !policy.has_waiters()) return false;
  const auto& last = state_.slot(first_missing_, meeting_ - 1);
  return last.processor.load(std::memory_order_relaxed) != sched_getcpu();
}

void Barrier::sleep(const WaitPolicy& policy) {
  const Sleeper sleeper{state_.sleepers};
  // The count is read before the slots: where it changes in between, the futex does not sleep.
  for (auto wake_count = state_.wake_count.load(); !all_have_arrived(); wake_count = state_.wake_count.load()) {
    throw_if_failed();
    look_after_deadline(policy.deadline);
    futex_wait(state_.wake_count, wake_count, std::min<std::chrono::nanoseconds>(kSlice, policy.deadline.remaining()));
    look_after_peers();
  }
}

void Barrier::look_after_deadline(const Deadline& deadline) {
  if (!deadline.expired()) return;
  auto late = missing();
  if (late.empty()) return;
  if (names_ != nullptr) std::ranges::transform(late, late.begin(), [&](int rank) { return names_->name_of(rank); });
  throw_failure(missing_ranks(std::move(late)));
}

void Barrier::look_after_peers() {
  for (const int rank : missing()) {
    const bool left = state_.left[static_cast<std::size_t>(rank)];
    const bool gone = !left && processes_.is_gone(rank);
    // Looked at once more: who has left or ended after coming has done its part.
    if ((!left && !gone) || has_arrived(rank)) continue;
    if (left)
      throw_failure(text(name(rank), " has left: it destroyed its communicator while others still wait for it."));
    throw_failure(text(name(rank), " (process ", processes_.of(rank), ") is gone: it exited or was killed."));
  }
}

void Barrier::check_kinds() {
  const auto kind = showing(rank_).kind;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (showing(rank).kind == kind) continue;
    throw_failure(text(name(rank_), " and ", name(rank),
                       " are in different steps of a collective: every rank must pass "
                       "the buffers that it has shown at its arrival, or none."));
  }
}

std::vector<int> Barrier::missing() const {
  std::vector<int> ranks;
  for (int rank = first_missing_; rank < world_size_; ++rank) {
    if (!has_arrived(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string Barrier::name(int rank) const {
  return text("rank ", names_ == nullptr ? rank : names_->name_of(rank));
}

void Barrier::throw_if_failed() const {
  if (state_.failure == SharedState::Failure::written) throw CommunicationError(state_.reason.data());
}

void Barrier::throw_failure(const std::string& reason) {
  fail(reason);
  throw_if_failed();
  throw CommunicationError(reason);  // another rank is still writing another one
}

void Barrier::abort(const std::string& reason) noexcept {
  try {
    const auto who = text(name(rank_), " failed: ");
    fail(reason.starts_with(who) ? reason : who + reason);
  } catch (...) {
    fail("a rank failed");  // out of memory; this text needs none
  }
}

void Barrier::refuse(const std::string& reason) noexcept {
  fail(reason);
}

void Barrier::give_up(const std::string& reason) {
  abort(reason);
  throw_failure(reason);
}

void Barrier::fail(const std::string& reason) noexcept {
  auto expected = SharedState::Failure::none;
  if (!state_.failure.compare_exchange_strong(expected, SharedState::Failure::being_written)) return;
  const auto length = std::min(reason.size(), SharedState::kLongestReason - 1);
  std::memcpy(state_.reason.data(), reason.data(), length);
  state_.reason[length] = '\0';
  state_.failure = SharedState::Failure::written;
  wake_sleepers();
}

void Barrier::leave() noexcept {
  state_.left[static_cast<std::size_t>(rank_)] = true;
  if (state_.sleepers != 0) wake_sleepers();
}

void Barrier::wake_sleepers() noexcept {
  ++state_.wake_count;
  futex_wake_all(state_.wake_count);
}

}  // namespace libtrain::detail
