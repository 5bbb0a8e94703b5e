// The barrier of shared memory on a board that threads reach at one address, so that a thread sanitizer can see
// whether meetings order what the ranks do: between mappings of one file it cannot.

#include <libtrain/comm/shared_memory/barrier.hpp>

#include <unistd.h>

#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace libtrain {
namespace {

using detail::Barrier;
using detail::Board;
using detail::MeetingKind;

const std::atomic<int> kNobody = 0;
const std::atomic<int> kSomebody = 1;
const auto kWhoWaits = {&kNobody, &kSomebody};  // the ranks sleep, or spin

Patience patience_for(const std::atomic<int>* waiters = &kSomebody) {
  return {.deadline = Deadline::after(std::chrono::minutes(2)), .waiters = waiters};
}

void on_barriers(int ranks, const std::function<void(Barrier&, int rank)>& body) {
  const auto board = std::make_unique<Board>();
  const detail::PeerProcesses processes{std::vector<pid_t>(static_cast<std::size_t>(ranks), getpid())};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Barrier barrier{*board, processes, rank, ranks};
      body(barrier, rank);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(board->sleepers, 0u);
}

TEST(SharedMemoryBarrier, OrdersWhatRanksDoBeforeAndAfter) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const auto* waiters : kWhoWaits) {
      std::vector<int> steps(static_cast<std::size_t>(ranks));  // not atomic: the barrier is what is tested
      on_barriers(ranks, [&](Barrier& barrier, int rank) {
        for (int step = 1; step <= 1000; ++step) {
          steps[static_cast<std::size_t>(rank)] = step;
          barrier.meet(MeetingKind::opening, patience_for(waiters));
          for (const int other : steps) EXPECT_EQ(other, step);
          barrier.meet(MeetingKind::closing, patience_for(waiters));
        }
      });
    }
  }
}

TEST(SharedMemoryBarrier, KeepsWhatWasShownUntilTheNextMeeting) {
  constexpr int kRanks = 3;
  on_barriers(kRanks, [&](Barrier& barrier, int rank) {
    for (std::uint64_t step = 0; step < 2000; ++step) {
      barrier.show({.kind = MeetingKind::arrival, .fingerprint = step, .input = {.offset = step + 1}}, patience_for());
      for (int other = 0; other < kRanks; ++other) {
        EXPECT_EQ(barrier.showing(other).fingerprint, step);
        EXPECT_EQ(barrier.showing(other).input.offset, step + 1);
      }
      // A rank that is slow to look must not see what a fast one shows next.
      if (step % 7 == static_cast<std::uint64_t>(rank)) std::this_thread::yield();
    }
  });
}

TEST(SharedMemoryBarrier, EveryRankFailsWithTheFirstReason) {
  on_barriers(4, [&](Barrier& barrier, int rank) {
    if (rank == 3) return barrier.abort("no");
    EXPECT_THROW(barrier.meet(MeetingKind::closing, patience_for(&kNobody)), CommunicationError);
    try {
      barrier.give_up("later");
    } catch (const CommunicationError& error) {
      EXPECT_STREQ(error.what(), "rank 3 failed: no");
    }
  });
}

}  // namespace
}  // namespace libtrain
