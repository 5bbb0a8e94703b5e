// What callers and peers can do wrong, on ranks as threads and under mpirun.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::on_fresh_ranks;
using testing::on_ranks;

TEST(CollectiveMisuse, BadArgumentsAreUsageErrorsBeforeAnythingIsSent) {
  on_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    EXPECT_THROW(communicator.all_reduce(at::Tensor{}), UsageError);
    EXPECT_THROW(communicator.all_reduce(torch::ones({4, 4}).t().slice(1, 0, 2)), UsageError);
    EXPECT_THROW(communicator.all_reduce(torch::ones({4}, at::kBool)), UsageError);
    EXPECT_THROW(communicator.broadcast(torch::ones({4}), world_size), UsageError);
    EXPECT_THROW(communicator.broadcast(torch::ones({4}), -1), UsageError);
    EXPECT_THROW(communicator.all_gather(torch::ones({4}), torch::ones({4 * world_size + 1})), UsageError);
    EXPECT_THROW(communicator.all_gather(torch::ones({4}), torch::ones({4 * world_size}, at::kInt)), UsageError);
    EXPECT_THROW(communicator.allocate(-1, at::kFloat), UsageError);
    EXPECT_THROW(communicator.split(-1, 0), UsageError);
    const auto message =
        message_of<UsageError>([&] { communicator.all_reduce(torch::ones({4}, at::kLong), ReduceOp::average); });
    EXPECT_THAT(message, AllOf(HasSubstr("average"), HasSubstr("int64"), HasSubstr("ReduceOp::sum")));
    communicator.barrier();  // still usable
  });
}

TEST(CollectiveMisuse, DifferentCallsEndOnEveryRankAndShowBothSides) {
  on_fresh_ranks(2, {.timeout = std::chrono::seconds(30)}, [](Communicator& communicator) {
    const auto tensor = torch::ones({communicator.rank() == 1 ? 12 : 10});
    const auto message = message_of<CommunicationError>([&] { communicator.all_reduce(tensor).wait(); });
    EXPECT_THAT(message, AllOf(HasSubstr("rank 0 called all_reduce of 10 float32 (sum)"),
                               HasSubstr("rank 1 called all_reduce of 12 float32 (sum)")));
    EXPECT_EQ(message_of<CommunicationError>([&] { communicator.barrier(); }), message);
  });
}

TEST(CollectiveMisuse, AnotherOperationTypeOrReductionIsNoticed) {
  const auto expect_mismatch = [](const std::function<void(Communicator&)>& on_rank_1) {
    on_fresh_ranks(2, {.timeout = std::chrono::seconds(30)}, [&](Communicator& communicator) {
      const auto call = [&] {
        if (communicator.rank() == 1) {
          on_rank_1(communicator);
        } else {
          communicator.all_reduce(torch::ones({8}, at::kInt)).wait();
        }
      };
      EXPECT_THAT(message_of<CommunicationError>(call), HasSubstr("different collectives"));
    });
  };
  expect_mismatch([](Communicator& communicator) { communicator.broadcast(torch::ones({8}, at::kInt), 0).wait(); });
  expect_mismatch([](Communicator& communicator) { communicator.all_reduce(torch::ones({8})).wait(); });
  expect_mismatch([](Communicator& communicator) {
    communicator.all_reduce(torch::ones({8}, at::kInt), ReduceOp::maximum).wait();
  });
  expect_mismatch([](Communicator& communicator) { communicator.barrier(); });
}

TEST(CollectiveMisuse, TensorsThatDoNotFitTogetherAreUsageErrors) {
  on_ranks([](Communicator& communicator) {
    const auto whole = torch::ones({8});
    EXPECT_THROW(communicator.all_reduce(whole, torch::ones({9}), ReduceOp::sum), UsageError);
    EXPECT_THROW(communicator.all_reduce(whole, torch::ones({8}, at::kInt), ReduceOp::sum), UsageError);
    EXPECT_THROW(communicator.all_reduce(whole.narrow(0, 0, 5), whole.narrow(0, 3, 5), ReduceOp::sum), UsageError);
    EXPECT_THROW(communicator.all_to_all(whole, whole), UsageError);
    EXPECT_THROW(communicator.reduce(whole, communicator.world_size()), UsageError);
    if (communicator.world_size() > 1) {
      const auto odd = torch::ones({8 * communicator.world_size() + 1});
      EXPECT_THROW(communicator.all_to_all(odd, torch::empty_like(odd)), UsageError);
    }
    communicator.barrier();  // still usable
  });
}

TEST(CollectiveMisuse, ACallMayHaveAShorterDeadlineThanItsCommunicator) {
  on_fresh_ranks(2, {.timeout = std::chrono::seconds(60)}, [](Communicator& communicator) {
    if (communicator.rank() == 1) return;
    const Stopwatch stopwatch;
    const auto call = [&] {
      communicator.all_reduce(torch::ones({8}), ReduceOp::sum, {.timeout = std::chrono::milliseconds(200)}).wait();
    };
    EXPECT_THAT(message_of<CommunicationError>(call), HasSubstr("rank 1 "));
    EXPECT_LT(stopwatch.seconds(), 6.0);
  });
}

TEST(CollectiveMisuse, ARankThatDoesNotComeIsNamed) {
  on_fresh_ranks(2, {.timeout = std::chrono::milliseconds(300)}, [](Communicator& communicator) {
    if (communicator.rank() == 1) return;
    const Stopwatch stopwatch;
    const auto message = message_of<CommunicationError>([&] { communicator.all_reduce(torch::ones({8})).wait(); });
    EXPECT_THAT(message, AllOf(HasSubstr("all_reduce of 8 float32 (sum)"), HasSubstr("rank 1 ")));
    EXPECT_LT(stopwatch.seconds(), 5.3);
  });
}

}  // namespace
}  // namespace libtrain
