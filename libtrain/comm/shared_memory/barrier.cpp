#include <libtrain/comm/shared_memory/barrier.hpp>

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include <libtrain/base/error.hpp>
#include <libtrain/base/machine.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/shared_memory/futex.hpp>

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

// Counted while it may fall asleep, so that nobody rings for nothing.
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

Barrier::Barrier(Board& board, const PeerProcesses& processes, int rank, int world_size)
    : board_(board),
      processes_(processes),
      rank_(rank),
      world_size_(world_size),
      is_crowded_(world_size > processors()) {}

void Barrier::meet(MeetingKind kind, const Patience& patience) {
  auto& card = board_.card(rank_, meeting_ + 1);
  card.showing.kind = kind;
  come(card, patience);
}

void Barrier::show(const Showing& showing, const Patience& patience) {
  auto& card = board_.card(rank_, meeting_ + 1);
  card.showing = showing;
  come(card, patience);
}

void Barrier::come(Card& card, const Patience& patience) {
  throw_if_failed();
  ++meeting_;
  first_missing_ = 0;
  // Sequentially consistent, like all accesses to `came` and `sleepers`: of those who come at the same time at least
  // one sees all others, and it sees who sleeps.
  card.processor.store(sched_getcpu(), std::memory_order_relaxed);
  card.came = meeting_;
  if (all_have_come()) {
    if (board_.sleepers != 0) ring();
  } else if (!spin(patience)) {
    sleep(patience);
  }
  check_kinds();
}

const Showing& Barrier::showing(int rank) const {
  return board_.card(rank, meeting_).showing;
}

bool Barrier::has_come(int rank) const {
  return board_.card(rank, meeting_).came == meeting_;
}

bool Barrier::all_have_come() {
  while (first_missing_ < world_size_ && has_come(first_missing_)) ++first_missing_;
  return first_missing_ == world_size_;
}

bool Barrier::spin(const Patience& patience) {
  const auto start = Stopwatch::Clock::now();
  while (true) {
    for (int look = 0; look < kLooksPerClockReading; ++look) {
      if (all_have_come()) return true;
      relax();
    }
    throw_if_failed();
    if (Stopwatch::Clock::now() - start >= (worth_spinning(patience) ? kSpinTime : kShortSpinTime)) return false;
  }
}

bool Barrier::worth_spinning(const Patience& patience) const {
  if (is_crowded_ || !patience.someone_waits()) return false;
  const auto& last = board_.card(first_missing_, meeting_ - 1);
  return last.processor.load(std::memory_order_relaxed) != sched_getcpu();
}

void Barrier::sleep(const Patience& patience) {
  const Sleeper sleeper{board_.sleepers};
  // The bell is read before the cards: when it rings in between, the futex does not sleep.
  for (auto bell = board_.bell.load(); !all_have_come(); bell = board_.bell.load()) {
    throw_if_failed();
    look_after_deadline(patience.deadline);
    futex_wait(board_.bell, bell, std::min<std::chrono::nanoseconds>(kSlice, patience.deadline.remaining()));
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
    const bool left = board_.left[static_cast<std::size_t>(rank)];
    const bool gone = !left && processes_.is_gone(rank);
    // Looked at once more: who has left or ended after coming has done its part.
    if ((!left && !gone) || has_come(rank)) continue;
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
    if (!has_come(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string Barrier::name(int rank) const {
  return text("rank ", names_ == nullptr ? rank : names_->name_of(rank));
}

void Barrier::throw_if_failed() const {
  if (board_.failure == Board::Failure::written) throw CommunicationError(board_.reason.data());
}

void Barrier::throw_failure(const std::string& reason) {
  fail(reason);
  throw_if_failed();
  throw CommunicationError(reason);  // somebody else is still writing another one
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
  auto expected = Board::Failure::none;
  if (!board_.failure.compare_exchange_strong(expected, Board::Failure::being_written)) return;
  const auto length = std::min(reason.size(), Board::kLongestReason - 1);
  std::memcpy(board_.reason.data(), reason.data(), length);
  board_.reason[length] = '\0';
  board_.failure = Board::Failure::written;
  ring();
}

void Barrier::leave() noexcept {
  board_.left[static_cast<std::size_t>(rank_)] = true;
  if (board_.sleepers != 0) ring();
}

void Barrier::ring() noexcept {
  ++board_.bell;
  futex_wake_all(board_.bell);
}

}  // namespace libtrain::detail
