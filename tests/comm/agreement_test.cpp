// The failure of one rank is the same error on all ranks. For require_agreement() see sync/diverged_replicas_test.cpp
// and the tests of other callers.

#include <libtrain/comm/detail/agreement.hpp>

#include <stdexcept>
#include <string>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;

// The message of the `Expected` that all of three ranks throw if ranks 1 and 2 fail with `fail`.
template <typename Expected, typename Fail>
std::string thrown_together(const Fail& fail) {
  std::string message;
  run_ranks(3, [&](Communicator& communicator) {
    ErrorScope scope = ErrorScope::this_rank;
    const auto told = message_of<Expected>([&] {
      try {
        run_together(communicator, "Opening the box", [&] {
          if (communicator.rank() > 0) fail(communicator.rank());
        });
      } catch (const Error& error) {
        scope = error.scope();
        throw;
      }
    });
    EXPECT_EQ(scope, ErrorScope::all_ranks);
    const auto all = communicator.all_gather_bytes(told);
    for (const auto& other : all) EXPECT_EQ(other, told);
    if (communicator.rank() == 0) message = told;
  });
  return message;
}

TEST(RunTogether, ThrowsTheFirstErrorOnAllRanksWithItsTypeAndRank) {
  EXPECT_EQ(thrown_together<UsageError>([](int rank) { throw UsageError(std::to_string(rank) + " lids."); }),
            "Opening the box failed on rank 1: 1 lids.");
  EXPECT_EQ(thrown_together<EnvironmentError>([](int) { throw EnvironmentError("No box."); }),
            "Opening the box failed on rank 1: No box.");
  EXPECT_EQ(thrown_together<CommunicationError>([](int) { throw CommunicationError("Gone."); }),
            "Opening the box failed on rank 1: Gone.");
}

TEST(RunTogether, TakesForeignErrorsForTheMachinesAndLibTorchsForTheCallers) {
  EXPECT_EQ(thrown_together<EnvironmentError>([](int) { throw std::runtime_error("rust"); }),
            "Opening the box failed on rank 1: rust");
  EXPECT_EQ(thrown_together<EnvironmentError>([](int) { throw 7; }), "Opening the box failed on rank 1: unknown error");
  EXPECT_EQ(thrown_together<UsageError>([](int) { TORCH_CHECK(false, "wrong shape"); }),
            "Opening the box failed on rank 1: wrong shape");
  EXPECT_THAT(thrown_together<EnvironmentError>([](int) {
                throw c10::OutOfMemoryError(c10::SourceLocation{"malloc", "file.cpp", 1}, "CUDA out of memory.");
              }),
              ::testing::HasSubstr("failed on rank 1: On the GPU: CUDA out of memory. Use a smaller batch"));
}

TEST(RunTogether, SaysNoRankWhereAllHaveTheSameProblem) {
  run_ranks(2, [](Communicator& communicator) {
    const auto fail = [] { throw UsageError("The box is locked."); };
    EXPECT_EQ(message_of<UsageError>([&] { run_together(communicator, "Opening the box", fail); }),
              "The box is locked.");
  });
}

TEST(RunTogether, GoesOnWhereNoRankFails) {
  run_ranks(2, [](Communicator& communicator) { run_together(communicator, "Opening the box", [] {}); });
}

}  // namespace
}  // namespace libtrain::detail
