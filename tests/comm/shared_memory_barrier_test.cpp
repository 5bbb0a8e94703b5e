// The barrier of shared memory on a state that threads reach at one address, so that a thread sanitizer can see whether
// barriers order what the ranks do: between mappings of one file it cannot.

#include <libtrain/comm/detail/shared_memory/barrier.hpp>

#include <unistd.h>

#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace libtrain {
namespace {

using detail::Barrier;
using detail::BarrierPhase;
using detail::SharedState;

const std::atomic<int> kNoWaiters = 0;
const std::atomic<int> kOneWaiter = 1;
const auto kWaiters = {&kNoWaiters, &kOneWaiter};  // the ranks sleep, or spin

WaitPolicy policy_for(const std::atomic<int>* waiters = &kOneWaiter) {
  return {.deadline = Deadline::after(std::chrono::minutes(2)), .waiters = waiters};
}

void on_barriers(int ranks, const std::function<void(Barrier&, int rank)>& body) {
  const auto state = std::make_unique<SharedState>();
  const detail::PeerProcesses processes{std::vector<pid_t>(static_cast<std::size_t>(ranks), getpid())};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Barrier barrier{*state, processes, rank, ranks};
      body(barrier, rank);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(state->sleepers, 0u);
}

TEST(SharedMemoryBarrier, OrdersWhatRanksDoBeforeAndAfter) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const auto* waiters : kWaiters) {
      std::vector<int> steps(static_cast<std::size_t>(ranks));  // not atomic: the barrier is what is tested
      on_barriers(ranks, [&](Barrier& barrier, int rank) {
        for (int step = 1; step <= 1000; ++step) {
          steps[static_cast<std::size_t>(rank)] = step;
          barrier.wait(BarrierPhase::opening, policy_for(waiters));
          for (const int other : steps) EXPECT_EQ(other, step);
          barrier.wait(BarrierPhase::closing, policy_for(waiters));
        }
      });
    }
  }
}

TEST(SharedMemoryBarrier, KeepsWhatWasPublishedUntilTheNextBarrier) {
  constexpr int kRanks = 3;
  on_barriers(kRanks, [&](Barrier& barrier, int rank) {
    for (std::uint64_t step = 0; step < 2000; ++step) {
      barrier.publish({.phase = BarrierPhase::arrival, .fingerprint = step, .input = {.offset = step + 1}},
                      policy_for());
      for (int other = 0; other < kRanks; ++other) {
        EXPECT_EQ(barrier.published(other).fingerprint, step);
        EXPECT_EQ(barrier.published(other).input.offset, step + 1);
      }
      // A rank that reads late must not see what a fast rank publishes next.
      if (step % 7 == static_cast<std::uint64_t>(rank)) std::this_thread::yield();
    }
  });
}

TEST(SharedMemoryBarrier, EveryRankFailsWithTheFirstReason) {
  on_barriers(4, [&](Barrier& barrier, int rank) {
    if (rank == 3) return barrier.abort("no");
    EXPECT_THROW(barrier.wait(BarrierPhase::closing, policy_for(&kNoWaiters)), CommunicationError);
    try {
      barrier.give_up("later");
    } catch (const CommunicationError& error) {
      EXPECT_STREQ(error.what(), "rank 3 failed: no");
    }
  });
}

}  // namespace
}  // namespace libtrain
