// NcclComm and the watchdog over a fake libnccl, with ranks as threads: no GPU is needed. Every call ends within its
// bound, whatever the library does, and one thread at a time polls a communicator.

#include <libtrain/comm/detail/nccl/nccl_comm.hpp>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/device/device_watchdog.hpp>
#include <libtrain/comm/detail/nccl/nccl_check.hpp>

#include <tests/support/fake_nccl/fake_nccl.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using test::FakeNccl;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kLong = 30s;

class NcclComms : public ::testing::Test {
 protected:
  void SetUp() override { ncclGetUniqueId(&id); }

  // No test may let two threads poll at once, or call what has ended.
  void TearDown() override {
    library.finish();
    EXPECT_EQ(library.concurrent_polls, 0);
    EXPECT_EQ(library.invalid_calls, 0);
  }

  std::shared_ptr<NcclComm> make(int rank, int ranks) { return std::make_shared<NcclComm>(id, rank, ranks, 0); }

  // Calls `body` with a connected communicator of each rank, on a thread for each.
  void on_ranks(int ranks, const std::function<void(int rank, const std::shared_ptr<NcclComm>& comm)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto comm = make(rank, ranks);
        comm->connect(Deadline::after(kLong));
        body(rank, comm);
      });
    }
    for (auto& thread : threads) thread.join();
  }

  static std::vector<float> sum_over_ranks(NcclComm& comm, std::vector<float> values, const Deadline& deadline) {
    comm.launch(
        [&](ncclComm_t native) {
          return ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclSum, native, nullptr);
        },
        deadline);
    return values;
  }

  FakeNccl& library = FakeNccl::start();
  ncclUniqueId id{};
};

TEST_F(NcclComms, RanksConnectReduceAndClose) {
  on_ranks(3, [](int rank, const auto& comm) {
    for (int call = 1; call <= 20; ++call) {
      const auto sums = sum_over_ranks(*comm, {1.0F, static_cast<float>(rank * call)}, Deadline::after(kLong));
      EXPECT_EQ(sums, (std::vector<float>{3.0F, static_cast<float>(3 * call)}));
    }
    comm->close();
  });
  EXPECT_EQ(library.launches, 60);
  EXPECT_EQ(library.destroys, 3);
  EXPECT_EQ(library.aborts, 0);
}

TEST_F(NcclComms, AGroupMayHoldSeveralMessages) {
  on_ranks(3, [](int rank, const auto& comm) {
    const std::vector<float> sent{10.0F * static_cast<float>(rank), 10.0F * static_cast<float>(rank) + 1,
                                  10.0F * static_cast<float>(rank) + 2};
    std::vector<float> received(3);
    comm->launch(
        [&](ncclComm_t native) {
          for (std::size_t peer = 0; peer < 3; ++peer) {
            ncclSend(&sent[peer], 1, ncclFloat32, static_cast<int>(peer), native, nullptr);
            ncclRecv(&received[peer], 1, ncclFloat32, static_cast<int>(peer), native, nullptr);
          }
          return ncclSuccess;
        },
        Deadline::after(kLong));
    const auto mine = static_cast<float>(rank);
    EXPECT_EQ(received, (std::vector<float>{mine, 10 + mine, 20 + mine}));
    comm->close();
  });
}

TEST_F(NcclComms, SlowProgressIsAwaited) {
  library.connecting = 200ms;
  library.launching = 200ms;
  on_ranks(2, [](int, const auto& comm) {
    const Stopwatch stopwatch;
    EXPECT_EQ(sum_over_ranks(*comm, {2.0F}, Deadline::after(kLong)), std::vector<float>{4.0F});
    EXPECT_GE(stopwatch.seconds(), 0.2);
    comm->close();
  });
}

TEST_F(NcclComms, AMissingPeerEndsTheConnectionAtItsDeadline) {
  auto comm = make(0, 2);
  const Stopwatch stopwatch;
  EXPECT_THAT(message_of<CommunicationError>([&] { comm->connect(Deadline::after(200ms)); }),
              AllOf(HasSubstr("rank 0"), HasSubstr("all 2 ranks"), HasSubstr("deadline")));
  comm.reset();
  EXPECT_LT(stopwatch.seconds(), 3.0);
  EXPECT_EQ(library.aborts, 1);
}

TEST_F(NcclComms, AConnectionThatNeverEndsLeavesTheDestructorBounded) {
  library.never_connects = true;
  library.abort_blocks = true;
  auto comm = make(0, 1);
  const Stopwatch stopwatch;
  EXPECT_THROW(comm->connect(Deadline::after(100ms)), CommunicationError);
  comm.reset();
  EXPECT_LT(stopwatch.seconds(), 4.0);
  EXPECT_EQ(library.aborts, 0) << "the abort is still blocked";
}

TEST_F(NcclComms, ALaunchEndsAtItsDeadlineAndReachesNoStreamAfterTheAbort) {
  on_ranks(2, [this](int, const auto& comm) {
    sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong));
    library.never_launches = true;
    const Stopwatch stopwatch;
    EXPECT_THAT(message_of<CommunicationError>([&] { sum_over_ranks(*comm, {1.0F}, Deadline::after(100ms)); }),
                HasSubstr("could not start the collective before the deadline"));
    EXPECT_LT(stopwatch.seconds(), 3.0);
    comm->abort();
    EXPECT_THAT(message_of<CommunicationError>([&] { sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong)); }),
                HasSubstr("has been aborted"));
  });
  EXPECT_EQ(library.launches, 2);
  EXPECT_EQ(library.aborts, 2);
}

TEST_F(NcclComms, AnAbortEndsALaunchInProgress) {
  on_ranks(2, [this](int, const auto& comm) {
    sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong));
    library.never_launches = true;
    std::thread aborter{[&] {
      std::this_thread::sleep_for(50ms);
      comm->abort();
    }};
    const Stopwatch stopwatch;
    EXPECT_THROW(sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong)), CommunicationError);
    EXPECT_LT(stopwatch.seconds(), 5.0);
    aborter.join();
  });
}

TEST_F(NcclComms, AnErrorOfACallEndsItsGroup) {
  auto comm = make(0, 1);
  comm->connect(Deadline::after(kLong));
  library.call_result = ncclInvalidArgument;
  EXPECT_THAT(message_of<CommunicationError>([&] { sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong)); }),
              AllOf(HasSubstr("failed on rank 0"), HasSubstr("code 4")));
  EXPECT_EQ(sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong)), std::vector<float>{1.0F}) << "no group stays open";
  comm->close();
}

TEST_F(NcclComms, AnErrorAtTheEndOfAGroupIsReported) {
  auto comm = make(0, 1);
  comm->connect(Deadline::after(kLong));
  library.group_result = ncclUnhandledCudaError;
  EXPECT_THAT(message_of<CommunicationError>([&] { sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong)); }),
              AllOf(HasSubstr("ncclGroupEnd failed on rank 0"), HasSubstr("unhandled cuda error")));
}

TEST_F(NcclComms, AnErrorOfTheBackgroundThreadIsReported) {
  auto comm = make(0, 1);
  comm->connect(Deadline::after(kLong));
  library.group_state = ncclSystemError;
  EXPECT_THAT(message_of<CommunicationError>([&] { sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong)); }),
              HasSubstr("code 2"));
  EXPECT_THAT(comm->asynchronous_error(), AllOf(HasSubstr("NCCL on rank 0 reports"), HasSubstr("code 2")));
}

TEST_F(NcclComms, OneThreadAtATimePolls) {
  library.launching = 3ms;
  on_ranks(2, [](int, const auto& comm) {
    std::atomic<bool> stops = false;
    std::vector<std::thread> pollers;
    for (int poller = 0; poller < 2; ++poller) {
      pollers.emplace_back([&] {
        while (!stops) EXPECT_EQ(comm->asynchronous_error(), "");
      });
    }
    for (int call = 0; call < 30; ++call) sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong));
    stops = true;
    for (auto& poller : pollers) poller.join();
    comm->close();
  });
}

TEST_F(NcclComms, APeerThatDoesNotCloseBoundsTheClose) {
  std::shared_ptr<NcclComm> kept;
  on_ranks(2, [&](int rank, const auto& comm) {
    if (rank == 1) {
      kept = comm;
      return;
    }
    const Stopwatch stopwatch;
    comm->close();
    EXPECT_LT(stopwatch.seconds(), 5.0);
  });
}

TEST_F(NcclComms, ADestroyThatBlocksBoundsTheClose) {
  library.destroy_blocks = true;
  on_ranks(2, [](int, const auto& comm) {
    const Stopwatch stopwatch;
    comm->close();
    EXPECT_LT(stopwatch.seconds(), 5.0);
  });
  EXPECT_EQ(library.destroys, 2);
}

TEST_F(NcclComms, LeftToTheEndOfTheProcessItIsNeitherClosedNorAborted) {
  on_ranks(2, [](int, const auto& comm) { comm->leave(); });
  EXPECT_EQ(library.finalizes + library.destroys + library.aborts, 0);
}

TEST_F(NcclComms, RegistrationsEndBeforeTheCommunicator) {
  on_ranks(2, [this](int, const auto& comm) {
    std::vector<float> memory(4);
    std::vector<float> other(4);
    auto* const registration = comm->register_memory(memory.data(), 16);
    auto* const second = comm->register_memory(other.data(), 16);
    ASSERT_NE(registration, nullptr);
    comm->deregister(registration);
    comm->close();
    comm->deregister(second);
    EXPECT_EQ(comm->register_memory(memory.data(), 16), nullptr);
  });
  EXPECT_EQ(library.registered, 0);
}

TEST_F(NcclComms, RegistrationsWaitForALaunchInProgress) {
  library.never_launches = true;
  on_ranks(1, [&](int, const auto& comm) {
    std::vector<float> memory(4);
    std::vector<float> other(4);
    auto* const registration = comm->register_memory(memory.data(), 16);
    EXPECT_FALSE(comm->is_launching());
    auto sums = std::async(std::launch::async, [&] { return sum_over_ranks(*comm, {2.0F}, Deadline::after(kLong)); });
    while (!comm->is_launching()) std::this_thread::yield();
    const auto end_of_launch = std::async(std::launch::async, [&] {
      std::this_thread::sleep_for(50ms);
      library.never_launches = false;
    });
    while (!comm->deregister(registration)) continue;  // a thread without a core may exceed its limit
    EXPECT_NE(comm->register_memory(other.data(), 16), nullptr);
    EXPECT_EQ(sums.get(), std::vector<float>{2.0F});
    EXPECT_FALSE(comm->is_launching());
    comm->close();
  });
  EXPECT_EQ(library.registered, 0);
}

TEST_F(NcclComms, MemoryStaysRegisteredIfALaunchDoesNotEnd) {
  library.never_launches = true;
  on_ranks(1, [](int, const auto& comm) {
    std::vector<float> memory(4);
    auto* const registration = comm->register_memory(memory.data(), 16);
    EXPECT_THROW(sum_over_ranks(*comm, {2.0F}, Deadline::after(100ms)), CommunicationError);
    EXPECT_FALSE(comm->deregister(registration));
    comm->abort();
    EXPECT_TRUE(comm->deregister(registration));
  });
  EXPECT_EQ(library.registered, 1);
}

TEST_F(NcclComms, RefusedRegistrationIsNoError) {
  library.refuses_memory = true;
  on_ranks(1, [](int, const auto& comm) {
    std::vector<float> memory(4);
    EXPECT_EQ(comm->register_memory(memory.data(), 16), nullptr);
    comm->close();
  });
}

// A collective whose end a test sets.
class TestOperation : public DeviceOperation {
 public:
  explicit TestOperation(const Deadline& deadline)
      : DeviceOperation({.call = {CallKind::all_reduce, 1, DataType::float32, ReduceOp::sum}, .device = "cuda"},
                        deadline) {}

  void wait() override {}
  bool done() override { return ended; }
  bool has_ended() override { return ended || aborted; }
  void release() noexcept override { released.set_value(); }
  void note_abort() noexcept override { aborted = true; }

  std::atomic<bool> ended = false;
  std::atomic<bool> aborted = false;
  std::promise<void> released;
};

struct Watched {
  explicit Watched(const std::shared_ptr<NcclComm>& comm)
      : failure(std::make_shared<FirstFailure>()),
        watchdog(std::make_unique<DeviceWatchdog>(comm, failure, OnFailure{})) {}

  std::shared_ptr<FirstFailure> failure;
  std::unique_ptr<DeviceWatchdog> watchdog;
};

TEST_F(NcclComms, TheWatchdogPollsBesideLaunchesAndCloses) {
  library.launching = 20ms;
  on_ranks(2, [](int, const auto& comm) {
    Watched watched{comm};
    for (int call = 0; call < 20; ++call) sum_over_ranks(*comm, {1.0F}, Deadline::after(kLong));
    EXPECT_FALSE(watched.failure->exists());
  });
  EXPECT_EQ(library.destroys, 2);
}

TEST_F(NcclComms, TheWatchdogEndsAHungCollectiveAndKeepsItsTensorsUntilThen) {
  on_ranks(2, [](int, const auto& comm) {
    Watched watched{comm};
    const auto operation = std::make_shared<TestOperation>(Deadline::after(50ms));
    watched.watchdog->watch(operation);
    auto released = operation->released.get_future();
    ASSERT_EQ(released.wait_for(kLong), std::future_status::ready);
    EXPECT_TRUE(operation->aborted);
    EXPECT_THAT(watched.failure->reason(), HasSubstr("all_reduce of 1 float32 (sum) on cuda"));
  });
  EXPECT_EQ(library.aborts, 2);
}

TEST_F(NcclComms, TensorsOfAFailedLaunchAreHeldUntilTheAbortHasReturned) {
  library.abort_blocks = true;
  auto comm = make(0, 1);
  comm->connect(Deadline::after(kLong));
  Watched watched{comm};
  library.never_launches = true;
  const auto operation = std::make_shared<TestOperation>(Deadline::after(kLong));
  try {
    sum_over_ranks(*comm, {1.0F}, Deadline::after(50ms));
  } catch (const CommunicationError&) {
    watched.watchdog->watch(operation);
    watched.watchdog->fail(std::current_exception());
  }
  auto released = operation->released.get_future();
  EXPECT_EQ(released.wait_for(500ms), std::future_status::timeout);
  library.abort_blocks = false;
  EXPECT_EQ(released.wait_for(kLong), std::future_status::ready);
}

TEST_F(NcclComms, AnAbortThatBlocksLeavesTheWatchdogBounded) {
  library.abort_blocks = true;
  auto comm = make(0, 1);
  comm->connect(Deadline::after(kLong));
  const Stopwatch stopwatch;
  try {
    const Watched watched{comm};
    watched.watchdog->fail(std::make_exception_ptr(CommunicationError("enough")));
    throw std::runtime_error("unwind");
  } catch (const std::runtime_error&) {
  }
  EXPECT_LT(stopwatch.seconds(), 10.0);
}

}  // namespace
}  // namespace libtrain::detail
