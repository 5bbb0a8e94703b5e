// What happens over shared memory when ranks die, stop, exit, disagree or get no memory.

#include <libtrain/comm/detail/shared_memory/shared_memory_transport.hpp>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <latch>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tests/comm/shared_memory_ranks.hpp>

namespace libtrain {
namespace {

using std::chrono::milliseconds;
using test::fork_ranks;
using test::on_processes;
using test::on_threads;
using test::SharedTable;
using test::sum_up;
using test::wait_for;
using test::wait_policy;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kSoon = 2.0;  // seconds; what is bounded by 0.5 on an idle machine
constexpr int kKilled = 128 + SIGKILL;

// The error that ends the wait of a rank whose peers do not arrive.
std::string failure_of(HostTransport& transport, const WaitPolicy& limit = wait_policy()) {
  try {
    transport.arrive({.fingerprint = 2}, limit);
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(SharedMemoryFaults, AKilledPeerIsNoticedSoon) {
  const auto results = on_processes(3, [](HostTransport& transport) {
    EXPECT_TRUE(transport.arrive({.fingerprint = 1}, wait_policy()));
    if (transport.rank() == 1) raise(SIGKILL);
    const Stopwatch stopwatch;
    EXPECT_THAT(failure_of(transport), AllOf(HasSubstr("rank 1 (process "), HasSubstr("exited or was killed")));
    EXPECT_LT(stopwatch.seconds(), kSoon);
  });
  EXPECT_THAT(results, ElementsAre(0, kKilled, 0));
}

TEST(SharedMemoryFaults, APeerKilledInsideACollectiveIsNoticedSoon) {
  const auto results = on_processes(2, [](HostTransport& transport) {
    const auto memory = transport.allocate(1 << 20);
    auto* data = static_cast<float*>(memory.get());
    sum_up(transport, data, 1 << 18);
    transport.arrive({.fingerprint = 1, .input = data, .output = data}, wait_policy());
    if (transport.rank() == 1) raise(SIGKILL);
    const Stopwatch stopwatch;
    EXPECT_THROW(transport.all_reduce(data, data, 1 << 18, DataType::float32, ReduceOp::sum, wait_policy()),
                 CommunicationError);
    EXPECT_LT(stopwatch.seconds(), kSoon);
  });
  EXPECT_THAT(results, ElementsAre(0, kKilled));
}

TEST(SharedMemoryFaults, APeerThatExitsIsNoticedSoon) {
  const auto results = on_processes(2, [](HostTransport& transport) {
    if (transport.rank() == 1) _exit(0);
    const Stopwatch stopwatch;
    EXPECT_THAT(failure_of(transport), HasSubstr("rank 1 (process "));
    EXPECT_LT(stopwatch.seconds(), kSoon);
  });
  EXPECT_THAT(results, ElementsAre(0, 0));
}

TEST(SharedMemoryFaults, TheDeadlineNamesAllWhoAreStopped) {
  SharedTable table{4};
  auto processes = fork_ranks(4, [&](int rank) {
    const auto base = table.rank(rank);
    const auto transport = detail::SharedMemoryTransport::connect(*base, wait_policy());
    transport->name_ranks({10, 11, 12, 13});
    if (rank % 2 == 1) raise(SIGSTOP);
    EXPECT_THAT(failure_of(*transport, wait_policy(milliseconds(300))), HasSubstr("ranks 11 and 13 did not arrive"));
  });
  EXPECT_THAT(wait_for({processes[0], processes[2]}), ElementsAre(0, 0));
  kill(processes[1], SIGKILL);
  kill(processes[3], SIGKILL);
  EXPECT_THAT(wait_for({processes[1], processes[3]}), ElementsAre(kKilled, kKilled));
}

TEST(SharedMemoryFaults, APeerThatDestroysItsTransportIsNamed) {
  SharedTable table{2};
  const auto results = wait_for(fork_ranks(2, [&](int rank) {
    const auto base = table.rank(rank);
    auto transport = detail::SharedMemoryTransport::connect(*base, wait_policy());
    if (rank == 0) {
      EXPECT_THAT(failure_of(*transport), HasSubstr("rank 1 destroyed its communicator"));
    } else {
      transport.reset();
    }
    table.wait();
  }));
  EXPECT_THAT(results, ElementsAre(0, 0));
}

TEST(SharedMemoryFaults, TheReasonOfAnAbortReachesThePeers) {
  on_threads(3, [](HostTransport& transport) {
    if (transport.rank() == 2) return transport.abort("the dog ate the batch");
    for (int call = 0; call < 2; ++call) EXPECT_EQ(failure_of(transport), "rank 2 failed: the dog ate the batch");
  });
  on_threads(2, [](HostTransport& transport) {
    if (transport.rank() == 1) return transport.abort("rank 1 failed: out of dogs");
    EXPECT_EQ(failure_of(transport), "rank 1 failed: out of dogs");
  });
}

TEST(SharedMemoryFaults, AnAbortEndsTheRanksOwnWait) {
  std::latch done{1};
  on_threads(2, [&](HostTransport& transport) {
    if (transport.rank() == 1) return done.wait();
    std::thread aborter{[&] { transport.abort("enough"); }};
    const Stopwatch stopwatch;
    EXPECT_EQ(failure_of(transport, {.deadline = Deadline::never()}), "rank 0 failed: enough");
    EXPECT_LT(stopwatch.seconds(), kSoon);
    aborter.join();
    done.count_down();
  });
}

TEST(SharedMemoryFaults, RanksInDifferentStepsAreTold) {
  on_threads(2, [](HostTransport& transport) {
    std::vector<float> announced(10);
    std::vector<float> passed(10);
    transport.arrive({.fingerprint = 1, .input = announced.data(), .output = announced.data()}, wait_policy());
    auto* data = transport.rank() == 0 ? announced.data() : passed.data();
    EXPECT_THROW(transport.all_reduce(data, data, 10, DataType::float32, ReduceOp::sum, wait_policy()),
                 CommunicationError);
  });
}

// A limit on one rank, under which it cannot connect.
void check_refusal(int limit, rlim_t value, const std::string& reason) {
  SharedTable table{3};
  const auto results = wait_for(fork_ranks(3, [&](int rank) {
    const auto base = table.rank(rank);
    const rlimit low{value, value};
    if (rank == 1) setrlimit(static_cast<__rlimit_resource>(limit), &low);
    try {
      detail::SharedMemoryTransport::connect(*base, wait_policy());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const EnvironmentError& error) {
      EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("because of rank 1"), HasSubstr(reason)));
    }
    std::vector<int> ranks(3);
    base->all_gather(&rank, ranks.data(), sizeof(int), wait_policy());
    EXPECT_THAT(ranks, ElementsAre(0, 1, 2));
  }));
  EXPECT_THAT(results, ElementsAre(0, 0, 0)) << reason;
}

TEST(SharedMemoryFaults, AllRanksLearnWhichOneGetsNoMemory) {
  check_refusal(RLIMIT_FSIZE, 1000, "ulimit -f");
}

// The sanitizer of undefined behaviour, which comes with that of addresses, opens a pipe to look at an object.
#if !defined(__SANITIZE_ADDRESS__)

TEST(SharedMemoryFaults, AllRanksLearnWhichOneHasTooFewDescriptors) {
  check_refusal(RLIMIT_NOFILE, 3, "Too many open files");
  check_refusal(RLIMIT_NOFILE, 5, "Too many open files");  // enough for its own memory, not for the others'
}

TEST(SharedMemoryFaults, AllRanksLearnWhoCannotMapABuffer) {
  const auto results = on_processes(2, [](HostTransport& transport) {
    const auto memory = transport.allocate(4096);
    const rlimit low{3, 3};
    if (transport.rank() == 1) setrlimit(RLIMIT_NOFILE, &low);
    try {
      sum_up(transport, static_cast<float*>(memory.get()), 1024);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const CommunicationError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 failed"), HasSubstr("Too many open files")));
    }
  });
  EXPECT_THAT(results, ElementsAre(0, 0));
}

#endif

TEST(SharedMemoryFaults, RanksOnOneProcessorDoNotStarveEachOther) {
  const auto results = on_processes(2, [](HostTransport& transport) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof(one), &one);
    const auto memory = transport.allocate(4096);
    const Stopwatch stopwatch;
    for (int i = 0; i < 1000; ++i) sum_up(transport, static_cast<float*>(memory.get()), 1024);
    EXPECT_LT(stopwatch.seconds(), 30.0);
  });
  EXPECT_THAT(results, ElementsAre(0, 0));
}

}  // namespace
}  // namespace libtrain
