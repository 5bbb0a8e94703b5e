// Mistakes of callers and peers, on ranks as threads and under mpirun.

#include <string_view>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_device;
using test::on_fresh_ranks;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(CollectiveMisuse, BadArgumentsAreUsageErrorsBeforeAnythingIsSent) {
  on_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    EXPECT_THROW(static_cast<void>(communicator.all_reduce(at::Tensor{})), UsageError);
    EXPECT_THROW(static_cast<void>(communicator.all_reduce(torch::_neg_view(torch::ones({4}, device())))), UsageError);
    EXPECT_THROW(static_cast<void>(communicator.all_reduce(torch::ones({4, 4}, device()).t().slice(1, 0, 2))),
                 UsageError);
    EXPECT_THROW(static_cast<void>(communicator.all_reduce(torch::ones({4}, on_device(at::kBool)))), UsageError);
    EXPECT_THROW(static_cast<void>(communicator.broadcast(torch::ones({4}, device()), world_size)), UsageError);
    EXPECT_THROW(static_cast<void>(communicator.broadcast(torch::ones({4}, device()), -1)), UsageError);
    EXPECT_THROW(static_cast<void>(
                     communicator.all_gather(torch::ones({4}, device()), torch::ones({4 * world_size + 1}, device()))),
                 UsageError);
    EXPECT_THROW(static_cast<void>(communicator.all_gather(torch::ones({4}, device()),
                                                           torch::ones({4 * world_size}, on_device(at::kInt)))),
                 UsageError);
    EXPECT_THROW(communicator.allocate(-1, at::kFloat), UsageError);
    EXPECT_THROW(communicator.split(-1, 0), UsageError);
    const auto message = message_of<UsageError>(
        [&] { communicator.all_reduce(torch::ones({4}, on_device(at::kLong)), ReduceOp::average).wait(); });
    EXPECT_THAT(message, AllOf(HasSubstr("average"), HasSubstr("int64"), HasSubstr("ReduceOp::sum")));
    communicator.barrier();  // still usable
  });
}

TEST(CollectiveMisuse, DifferentCallsEndOnEveryRankAndShowBothSides) {
  on_fresh_ranks(2, {.timeout = std::chrono::seconds(30)}, [](Communicator& communicator) {
    const auto tensor = torch::ones({communicator.rank() == 1 ? 12 : 10}, device());
    const auto message = message_of<CommunicationError>([&] { communicator.all_reduce(tensor).wait(); });
    EXPECT_THAT(message, AllOf(HasSubstr(" called all_reduce of 10 float32 (sum)"),
                               HasSubstr("rank 1 called all_reduce of 12 float32 (sum)")));
    EXPECT_EQ(message_of<CommunicationError>([&] { communicator.barrier(); }), message);
  });
}

// Control messages differ only in their purpose.
TEST(CollectiveMisuse, TheSameCallForAnotherPurposeIsNoticed) {
  on_fresh_ranks(2, {.timeout = std::chrono::seconds(30)}, [](Communicator& communicator) {
    const auto call = [&](std::string_view purpose) {
      const CallPurpose what{communicator, purpose};
      return communicator.all_gather_bytes("1");
    };
    EXPECT_EQ(call("the start").size(), static_cast<std::size_t>(communicator.world_size()));
    {
      // The outermost purpose wins, and inner ones may differ.
      const CallPurpose outer{communicator, "all of it"};
      call(communicator.rank() == 1 ? "the end" : "the start");
    }
    communicator.all_gather_bytes("for nothing in particular");
    EXPECT_THAT(message_of<CommunicationError>([&] { call(communicator.rank() == 1 ? "the end" : "the start"); }),
                AllOf(HasSubstr(" called all_gather_bytes for the start"),
                      HasSubstr("rank 1 called all_gather_bytes for the end")));
  });
}

TEST(CollectiveMisuse, AnotherOperationTypeOrReductionIsNoticed) {
  const auto expect_mismatch = [](const std::function<void(Communicator&)>& on_rank_1) {
    on_fresh_ranks(2, {.timeout = std::chrono::seconds(30)}, [&](Communicator& communicator) {
      const auto call = [&] {
        if (communicator.rank() == 1) {
          on_rank_1(communicator);
        } else {
          communicator.all_reduce(torch::ones({8}, on_device(at::kInt))).wait();
        }
      };
      EXPECT_THAT(message_of<CommunicationError>(call), HasSubstr("different collectives"));
    });
  };
  expect_mismatch(
      [](Communicator& communicator) { communicator.broadcast(torch::ones({8}, on_device(at::kInt)), 0).wait(); });
  expect_mismatch([](Communicator& communicator) { communicator.all_reduce(torch::ones({8}, device())).wait(); });
  expect_mismatch([](Communicator& communicator) {
    communicator.all_reduce(torch::ones({8}, on_device(at::kInt)), ReduceOp::maximum).wait();
  });
  expect_mismatch([](Communicator& communicator) { communicator.barrier(); });
}

TEST(CollectiveMisuse, TensorsThatDoNotFitTogetherAreUsageErrors) {
  on_ranks([](Communicator& communicator) {
    const auto whole = torch::ones({8}, device());
    EXPECT_THROW(static_cast<void>(communicator.all_reduce(whole, torch::ones({9}, device()), ReduceOp::sum)),
                 UsageError);
    EXPECT_THROW(
        static_cast<void>(communicator.all_reduce(whole, torch::ones({8}, on_device(at::kInt)), ReduceOp::sum)),
        UsageError);
    EXPECT_THROW(
        static_cast<void>(communicator.all_reduce(whole.narrow(0, 0, 5), whole.narrow(0, 3, 5), ReduceOp::sum)),
        UsageError);
    EXPECT_THROW(static_cast<void>(communicator.all_to_all(whole, whole)), UsageError);
    EXPECT_THROW(static_cast<void>(communicator.reduce(whole, communicator.world_size())), UsageError);
    if (communicator.world_size() > 1) {
      const auto odd = torch::ones({8 * communicator.world_size() + 1}, device());
      EXPECT_THROW(static_cast<void>(communicator.all_to_all(odd, torch::empty_like(odd))), UsageError);
    }
    communicator.barrier();  // still usable
  });
}

TEST(CollectiveMisuse, AnOverlapThatIsNotTheRanksPartIsAUsageError) {
  on_fresh_ranks(2, {.timeout = std::chrono::seconds(30)}, [](Communicator& communicator) {
    const auto whole = torch::ones({communicator.world_size(), 4}, device());
    const int another = communicator.rank() == 0 ? 1 : 0;
    const auto gather = [&] { communicator.all_gather(whole[another], whole).wait(); };
    EXPECT_THAT(message_of<UsageError>(gather), AllOf(HasSubstr("all_gather"), HasSubstr("overlap")));
    EXPECT_THROW(static_cast<void>(communicator.reduce_scatter(whole, whole[another])), UsageError);
    communicator.all_gather(whole[communicator.rank()], whole).wait();
  });
}

TEST(CollectiveMisuse, NoAllocationIsTooLargeToCount) {
  on_ranks([](Communicator& communicator) {
    EXPECT_THROW(communicator.allocate((std::int64_t{1} << 62) + 1, at::kFloat), UsageError);
    communicator.barrier();  // still usable
  });
}

// The first deadline of any rank ends the call on all ranks, or their next call if they had finished this one, whether
// or not rank 0 has arrived.
TEST(CollectiveMisuse, TheShortestDeadlineEndsTheCallForAll) {
  on_fresh_ranks(2, {.timeout = std::chrono::seconds(40)}, [](Communicator& communicator) {
    const bool is_last = communicator.rank() == communicator.world_size() - 1;
    // Longer than the time that hosts give each other to send an error.
    if (!is_last) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    const auto timeout = is_last ? std::chrono::milliseconds(300) : std::chrono::milliseconds(30000);
    const Stopwatch stopwatch;
    const auto call_twice = [&] {
      communicator.barrier({.timeout = timeout});
      communicator.barrier({.timeout = timeout});
    };
    EXPECT_THAT(message_of<CommunicationError>(call_twice), HasSubstr("barrier"));
    EXPECT_LT(stopwatch.seconds(), 8.0);
  });
}

TEST(CollectiveMisuse, AllRanksNameTheOneThatDoesNotComeAtTheFirstDeadline) {
  on_fresh_ranks(3, {.timeout = std::chrono::seconds(40)}, [](Communicator& communicator) {
    // Between hosts, only the first rank of each knows of the other hosts' deadlines.
    if (communicator.backend().find('+') != std::string_view::npos) return;
    if (communicator.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(4));
    const bool is_last = communicator.rank() == communicator.world_size() - 1;
    const auto timeout = is_last ? std::chrono::milliseconds(500) : std::chrono::milliseconds(30000);
    const Stopwatch stopwatch;
    const auto message = message_of<CommunicationError>([&] { communicator.barrier({.timeout = timeout}); });
    EXPECT_THAT(message, AllOf(HasSubstr("barrier (collective number 0)"), ContainsRegex("ranks? 1 .*did not arrive")));
    EXPECT_LT(stopwatch.seconds(), 8.0);
  });
}

TEST(CollectiveMisuse, ACallMayHaveAShorterDeadlineThanItsCommunicator) {
  on_fresh_ranks(2, {.timeout = std::chrono::seconds(60)}, [](Communicator& communicator) {
    if (communicator.rank() == 1) return;
    const Stopwatch stopwatch;
    const auto call = [&] {
      communicator.all_reduce(torch::ones({8}, device()), ReduceOp::sum, {.timeout = std::chrono::milliseconds(200)})
          .wait();
    };
    EXPECT_THAT(message_of<CommunicationError>(call), ContainsRegex("ranks? 1 "));
    EXPECT_LT(stopwatch.seconds(), 6.0);
  });
}

// On a busy machine others may be late, too.
TEST(CollectiveMisuse, ARankThatDoesNotComeIsNamed) {
  on_fresh_ranks(2, {.timeout = std::chrono::milliseconds(300)}, [](Communicator& communicator) {
    if (communicator.rank() == 1) return;
    const Stopwatch stopwatch;
    const auto message =
        message_of<CommunicationError>([&] { communicator.all_reduce(torch::ones({8}, device())).wait(); });
    EXPECT_THAT(message, AllOf(HasSubstr("all_reduce of 8 float32 (sum)"), ContainsRegex("ranks? 1 ")));
    EXPECT_LT(stopwatch.seconds(), 5.3);
  });
}

}  // namespace
}  // namespace libtrain
