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

constexpr microseconds kBarrierSpinTime{40};
constexpr microseconds kShortSpinTime{1};
constexpr std::chrono::milliseconds kSlice{100};
constexpr int kChecksPerClockReading = 8;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The number of threads that can run at the same time, limited by the CPU quota of the container.
int usable_processors() {
  const auto all = static_cast<double>(std::thread::hardware_concurrency());
  return static_cast<int>(std::ceil(std::min(all, cpu_quota().value_or(all))));
}

// Sleeps until a peer wakes `word`, for at most `timeout`, unless `word` differs from `expected`. May return early.
// Works across processes, unlike std::atomic's own wait.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds timeout) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Counts a rank that may sleep, so that peers make the system call to wake it only if necessary.
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
      is_crowded_(world_size > usable_processors()) {}

void Barrier::wait(BarrierPhase phase, const WaitPolicy& policy) {
  auto& slot = state_.slot(rank_, number_ + 1);
  slot.published.phase = phase;
  arrive(slot, policy);
}

void Barrier::publish(const PublishedBuffers& buffers, const WaitPolicy& policy) {
  auto& slot = state_.slot(rank_, number_ + 1);
  slot.published = buffers;
  arrive(slot, policy);
}

void Barrier::arrive(Slot& slot, const WaitPolicy& policy) {
  throw_if_failed();
  ++number_;
  first_missing_ = 0;
  // Sequentially consistent, like all accesses to `arrived` and `sleepers`: if ranks arrive at the same time, at least
  // one of them sees that all have arrived, and sees the sleeping ranks.
  slot.processor.store(sched_getcpu(), std::memory_order_relaxed);
  slot.arrived = number_;
  if (all_have_arrived()) {
    if (state_.sleepers != 0) wake_sleepers();
  } else if (!spin(policy)) {
    sleep(policy);
  }
  check_phases();
}

const PublishedBuffers& Barrier::published(int rank) const {
  return state_.slot(rank, number_).published;
}

bool Barrier::has_arrived(int rank) const {
  return state_.slot(rank, number_).arrived == number_;
}

bool Barrier::all_have_arrived() {
  while (first_missing_ < world_size_ && has_arrived(first_missing_)) ++first_missing_;
  return first_missing_ == world_size_;
}

bool Barrier::spin(const WaitPolicy& policy) {
  const auto start = Stopwatch::Clock::now();
  while (true) {
    for (int check = 0; check < kChecksPerClockReading; ++check) {
      if (all_have_arrived()) return true;
      relax();
    }
    throw_if_failed();
    if (Stopwatch::Clock::now() - start >= (worth_spinning(policy) ? kBarrierSpinTime : kShortSpinTime)) return false;
  }
}

bool Barrier::worth_spinning(const WaitPolicy& policy) const {
  if (is_crowded_ || !policy.has_waiters()) return false;
  const auto& last = state_.slot(first_missing_, number_ - 1);
  return last.processor.load(std::memory_order_relaxed) != sched_getcpu();
}

void Barrier::sleep(const WaitPolicy& policy) {
  const Sleeper sleeper{state_.sleepers};
  // The count is read before the slots: if it changes in between, the futex does not sleep.
  for (auto wake_count = state_.wake_count.load(); !all_have_arrived(); wake_count = state_.wake_count.load()) {
    throw_if_failed();
    check_deadline(policy.deadline);
    futex_wait(state_.wake_count, wake_count, std::min<std::chrono::nanoseconds>(kSlice, policy.deadline.remaining()));
    check_peers();
  }
}

void Barrier::check_deadline(const Deadline& deadline) {
  if (!deadline.expired()) return;
  auto late = missing();
  if (late.empty()) return;
  if (names_ != nullptr) std::ranges::transform(late, late.begin(), [&](int rank) { return names_->name_of(rank); });
  throw_failure(missing_ranks(std::move(late)));
}

void Barrier::check_peers() {
  for (const int rank : missing()) {
    const bool closed = state_.closed[static_cast<std::size_t>(rank)];
    const bool exited = !closed && processes_.has_exited(rank);
    // A rank that closed or exited after it had arrived is not missing.
    if ((!closed && !exited) || has_arrived(rank)) continue;
    if (closed) {
      throw_failure(text(name(rank),
                         " destroyed its communicator while other ranks wait for it. Make the same collective calls on "
                         "every rank."));
    }
    throw_failure(
        text(name(rank), " (process ", processes_.of(rank), ") exited or was killed. See the log of that rank."));
  }
}

void Barrier::check_phases() {
  const auto phase = published(rank_).phase;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (published(rank).phase == phase) continue;
    throw_failure(text(name(rank_), " and ", name(rank),
                       " are in different steps of one collective. Either every rank passes the buffers that it gave "
                       "to arrive(), or no rank does."));
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
  throw CommunicationError(reason);  // another rank is still writing its reason
}

void Barrier::abort(const std::string& reason) noexcept {
  try {
    const auto who = text(name(rank_), " failed: ");
    fail(reason.starts_with(who) ? reason : who + reason);
  } catch (...) {
    fail("a rank failed");  // out of memory
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
  const auto length = std::min(reason.size(), SharedState::kMaxReason - 1);
  std::memcpy(state_.reason.data(), reason.data(), length);
  state_.reason[length] = '\0';
  state_.failure = SharedState::Failure::written;
  wake_sleepers();
}

void Barrier::close() noexcept {
  state_.closed[static_cast<std::size_t>(rank_)] = true;
  if (state_.sleepers != 0) wake_sleepers();
}

void Barrier::wake_sleepers() noexcept {
  ++state_.wake_count;
  futex_wake_all(state_.wake_count);
}

}  // namespace libtrain::detail
