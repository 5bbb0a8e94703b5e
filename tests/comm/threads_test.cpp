// Tests that are possible only with ranks as threads.

#include <atomic>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ThreadRanks, RunOnceEach) {
  std::atomic<int> ranks = 0;
  run_ranks(4, [&](Communicator& communicator) { ranks += 1 << (4 * communicator.rank()); });
  EXPECT_EQ(ranks, 0x1111);
}

TEST(ThreadRanks, AFailureReachesThePeersWithItsText) {
  std::atomic<int> told = 0;
  const Stopwatch stopwatch;
  try {
    run_ranks(3, [&](Communicator& communicator) {
      if (communicator.rank() == 2) throw std::runtime_error("the dog ate the batch");
      try {
        communicator.barrier();
      } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 2 failed"), HasSubstr("the dog ate the batch")));
        ++told;
        throw;
      }
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the dog ate the batch");
  }
  EXPECT_EQ(told, 2);
  EXPECT_LT(stopwatch.seconds(), 10.0);
}

TEST(ThreadRanks, TheDeadlineNamesWhoDidNotCome) {
  std::latch done{1};
  const auto body = [&](Communicator& communicator) {
    if (communicator.rank() == 1) return done.wait();
    EXPECT_THAT(message_of<CommunicationError>([&] { communicator.barrier(); }),
                AllOf(HasSubstr("rank 1 did not arrive"), HasSubstr("barrier (collective number 0)")));
    done.count_down();
  };
  run_ranks(2, body, {.timeout = std::chrono::milliseconds(200)});
}

TEST(ThreadRanks, ACommunicatorCanBeDestroyedWithCollectivesUnderWay) {
  const Stopwatch stopwatch;
  run_ranks(2, [](Communicator& communicator) {
    if (communicator.rank() == 0) static_cast<void>(communicator.all_reduce(torch::ones({10})));
  });
  EXPECT_LT(stopwatch.seconds(), 20.0);
}

TEST(ThreadRanks, AbortEndsPendingAndLaterCalls) {
  run_ranks(2, [](Communicator& communicator) {
    if (communicator.rank() == 0) {
      auto work = communicator.all_reduce(torch::ones({10}));
      communicator.abort("enough");
      EXPECT_THROW(work.wait(), CommunicationError);
      EXPECT_THROW(communicator.barrier(), CommunicationError);
    }
  });
}

TEST(ThreadRanks, AnAbortWithoutAReasonIsStillOne) {
  run_ranks(2, [](Communicator& communicator) {
    if (communicator.rank() == 0) communicator.abort("");
    EXPECT_THROW(communicator.barrier(), CommunicationError);
  });
}

TEST(ThreadRanks, AFailureWhileTheyConnectReachesThePeers) {
  const auto connect = [](std::unique_ptr<HostTransport> transport) {
    if (transport->rank() == 1) throw EnvironmentError("no cable");
    return transport;
  };
  std::atomic<int> told = 0;
  const auto body = [&](Communicator& communicator) {
    try {
      communicator.barrier();
    } catch (const CommunicationError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 failed: no cable"));
      ++told;
    }
  };
  EXPECT_THROW(detail::run_ranks_over(connect, 3, body), EnvironmentError);
  EXPECT_EQ(told, 2);
}

TEST(ThreadRanks, AbortEndsTheWaitOfAnotherThread) {
  run_ranks(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) return;
    std::thread killer{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      communicator.abort("enough");
    }};
    std::string message;
    try {
      communicator.barrier();
    } catch (const CommunicationError& error) {
      message = error.what();
    }
    killer.join();
    EXPECT_THAT(message, HasSubstr("enough"));
  });
}

TEST(ThreadRanks, NeedAtLeastOne) {
  EXPECT_THROW(run_ranks(0, [](Communicator&) {}), UsageError);
}

TEST(SingleCommunicator, IsAGroupOfOne) {
  detail::SingleCommunicator single;
  Communicator& communicator = single;
  const auto tensor = torch::arange(5, at::kFloat);
  communicator.all_reduce(tensor, ReduceOp::average).wait();
  EXPECT_TRUE(torch::equal(tensor, torch::arange(5, at::kFloat)));
  const auto output = torch::zeros({5});
  communicator.all_gather(tensor, output).wait();
  EXPECT_TRUE(torch::equal(tensor, output));
  EXPECT_EQ(communicator.all_gather_bytes("me"), std::vector<std::string>{"me"});
  EXPECT_EQ(communicator.split(3, 1)->world_size(), 1);
  EXPECT_THROW(static_cast<void>(communicator.broadcast(tensor, 1)), UsageError);
  communicator.abort("enough", ExitCode::communication);
  EXPECT_THROW(communicator.barrier(), CommunicationError);
}

}  // namespace
}  // namespace libtrain
