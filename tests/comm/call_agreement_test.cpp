// How ranks detect that they make different calls, on ranks as threads and under mpirun.

#include <libtrain/comm/detail/device/call_agreement.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>

#include <tests/support/on_ranks.hpp>

namespace libtrain::detail {
namespace {

using libtrain::test::on_fresh_ranks;
using libtrain::test::on_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr CommunicatorOptions kOptions{.timeout = std::chrono::seconds(30)};

Call all_reduce_of(std::uint64_t count) {
  return {CallKind::all_reduce, count, DataType::float32, ReduceOp::sum};
}

template <typename Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const CommunicationError& error) {
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(CallAgreement, EqualCallsPassAndAreNumbered) {
  on_ranks([](Communicator& communicator) {
    CallAgreement agreement{communicator.split(0, communicator.rank())};
    for (std::uint64_t call = 0; call < 200; ++call) EXPECT_EQ(agreement.next_collective(all_reduce_of(call)), call);
    agreement.compare({.kind = CallKind::barrier});
  });
}

TEST(CallAgreement, ADifferentCountShowsBothSidesOnEveryRank) {
  on_fresh_ranks(2, kOptions, [](Communicator& communicator) {
    CallAgreement agreement{communicator.split(0, communicator.rank())};
    agreement.next_collective(all_reduce_of(7));
    const bool differs = communicator.rank() == 1;
    EXPECT_THAT(message_of([&] { agreement.next_collective(all_reduce_of(differs ? 12 : 10)); }),
                AllOf(HasSubstr("called all_reduce of 10 float32 (sum)"),
                      HasSubstr("rank 1 called all_reduce of 12 float32 (sum)")));
  });
}

TEST(CallAgreement, ARankThatIsOneCollectiveAheadIsFoundLater) {
  on_fresh_ranks(2, kOptions, [](Communicator& communicator) {
    CallAgreement agreement{communicator.split(0, communicator.rank())};
    for (int call = 0; call < 16; ++call) agreement.next_collective(all_reduce_of(10));
#ifdef NDEBUG
    // Not compared: the seventeenth.
    if (communicator.rank() == 1) agreement.next_collective(all_reduce_of(10));
    EXPECT_THAT(message_of([&] { agreement.compare({.kind = CallKind::barrier}); }),
                AllOf(HasSubstr("barrier (after 16 collectives)"), HasSubstr("barrier (after 17 collectives)")));
#else
    EXPECT_THAT(message_of([&] {
                  if (communicator.rank() == 1) agreement.next_collective(all_reduce_of(10));
                  agreement.compare({.kind = CallKind::barrier});
                }),
                AllOf(HasSubstr("called barrier (after 16 collectives)"), HasSubstr("called all_reduce of 10")));
#endif
  });
}

TEST(CallAgreement, ACallsOwnTimeoutBoundsTheExchange) {
  on_fresh_ranks(2, kOptions, [](Communicator& communicator) {
    CallAgreement agreement{communicator.split(0, communicator.rank())};
    if (communicator.rank() == 0) {
      const Stopwatch stopwatch;
      const CallOptions options{.timeout = std::chrono::milliseconds(200)};
      EXPECT_THROW(agreement.next_collective(all_reduce_of(10), options), CommunicationError);
      EXPECT_LT(stopwatch.seconds(), 20.0);
    }
    // No rank exits before that: only the timeout ends the call.
    communicator.barrier();
  });
}

}  // namespace
}  // namespace libtrain::detail
