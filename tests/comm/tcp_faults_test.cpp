// Ranks that die, stop, exit or fail: all others get the same error soon.

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/comm/detail/hierarchy/hierarchical_transport.hpp>
#include <libtrain/comm/detail/tcp/control_channel.hpp>
#include <libtrain/comm/detail/tcp/liveness_check.hpp>

#include <tests/comm/tcp_knocks.hpp>
#include <tests/comm/tcp_processes.hpp>

namespace libtrain::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void reduce(HostTransport& transport, std::vector<float>& data, milliseconds time) {
  transport.all_reduce(data.data(), data.data(), data.size(), DataType::float32, ReduceOp::sum, wait_policy(time));
}

void meet_and_reduce(HostTransport& transport, std::size_t count, milliseconds time = std::chrono::seconds(60)) {
  std::vector<float> data(count, 1.0f);
  transport.arrive({.fingerprint = 1}, wait_policy(time));
  reduce(transport, data, time);
}

// The error of a surviving rank. Its timeout is longer than this bound, except if the lost rank is only stopped.
template <typename Call>
std::string survive(HostTransport& transport, const Call& call) {
  const Stopwatch stopwatch;
  const auto message = failure_of(call);
  const bool soon = stopwatch.seconds() < 30.0;
  const auto later = failure_of([&] { meet_and_reduce(transport, 1); });
  return text(soon ? "soon: " : "late: ", message, message == later ? "" : "; later: " + later);
}

struct Fault {
  const char* name;
  int rank;
  void (*strike)();
  const char* message;
  milliseconds timeout;
};

void PrintTo(const Fault& fault, std::ostream* stream) {
  *stream << fault.name << " of rank " << fault.rank;
}

void be_killed() {
  raise(SIGKILL);
}
void be_stopped() {
  setpgid(0, 0);  // the kernel continues stopped processes of a group when the shell that leads it ends
  raise(SIGSTOP);
}
void exit_early() {
  exit(0);
}

class TcpFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(TcpFaults, BetweenCollectivesEndAllRanks) {
  const auto& fault = GetParam();
  const auto results = on_tcp_processes(4, fault.rank, [&](HostTransport& transport) {
    for (int step = 0; step < 20; ++step) meet_and_reduce(transport, 50'000);
    return survive(transport, [&] {
      // A rank that has left this arrival may be lost before the others leave it.
      transport.arrive({.fingerprint = 1}, wait_policy());
      if (transport.rank() == fault.rank) fault.strike();
      transport.arrive({.fingerprint = 1}, wait_policy(fault.timeout));
      transport.arrive({.fingerprint = 1}, wait_policy(fault.timeout));
    });
  });
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == fault.rank) continue;
    const auto& result = results[static_cast<std::size_t>(rank)];
    EXPECT_THAT(result, AllOf(HasSubstr("soon: rank "), HasSubstr(fault.message), Not(HasSubstr("later"))));
    EXPECT_THAT(result, HasSubstr(text("rank ", fault.rank, " ")));
  }
}

TEST_P(TcpFaults, WithinACollectiveEndAllRanks) {
  const auto& fault = GetParam();
  const auto results = on_tcp_processes(3, fault.rank, [&](HostTransport& transport) {
    std::vector<float> data(std::size_t{1} << 20, 1.0f);
    return survive(transport, [&] {
      // A rank that has left this arrival may be lost before the others leave it.
      transport.arrive({.fingerprint = 1}, wait_policy());
      if (transport.rank() == fault.rank) fault.strike();
      reduce(transport, data, fault.timeout);
    });
  });
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == fault.rank) continue;
    EXPECT_THAT(results[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr(text("soon: rank ", fault.rank, " at 127.0.0.1:")), Not(HasSubstr("later"))));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TcpFaults,
    ::testing::Values(Fault{"SIGKILL", 0, be_killed, "exited or was killed", std::chrono::seconds(60)},
                      Fault{"SIGKILL", 2, be_killed, "exited or was killed", std::chrono::seconds(60)},
                      Fault{"SIGSTOP", 0, be_stopped, "did not arrive before the deadline", milliseconds(1500)},
                      Fault{"SIGSTOP", 1, be_stopped, "did not arrive before the deadline", milliseconds(1500)},
                      Fault{"exit(0)", 1, exit_early, "exited or was killed", std::chrono::seconds(60)}));

TEST(TcpDeadline, NamesAllRanksThatDidNotComeOnAllRanks) {
  std::latch done{3};
  on_tcp_ranks(5, [&](HostTransport& transport) {
    const int rank = transport.rank();
    if (rank == 2 || rank == 4) return done.wait();
    // The first deadline ends the call for all.
    const auto time = rank == 0 ? milliseconds(300) : milliseconds(60'000);
    const auto message = failure_of([&] { transport.arrive({.fingerprint = 1}, wait_policy(time)); });
    EXPECT_THAT(message, HasSubstr("ranks 2 and 4 did not arrive before the deadline"));
    done.count_down();
  });
}

TEST(TcpDeadline, DoesNotAccuseThoseWhoHaveFinished) {
  std::latch done{1};
  on_tcp_ranks(4, [&](HostTransport& transport) {
    const int rank = transport.rank();
    if (rank == 1) return done.wait();
    // Without an arrival, as during the setup of a group. Rank 3 sends to rank 2, which sends to rank 0.
    const auto reduce_to_0 = [&] {
      const auto time = rank == 0 ? milliseconds(300) : milliseconds(60'000);
      int sum = 1;
      transport.reduce(&sum, &sum, 1, DataType::int32, ReduceOp::sum, 0, wait_policy(time));
    };
    if (rank > 0) {
      reduce_to_0();
      return done.wait();
    }
    const auto message = failure_of(reduce_to_0);
    EXPECT_THAT(message,
                AllOf(HasSubstr("rank 1 at 127.0.0.1:"), HasSubstr("stopped moving data before the deadline")));
    EXPECT_THAT(message, AllOf(Not(HasSubstr("rank 2")), Not(HasSubstr("rank 3"))));
    done.count_down();
  });
}

TEST(TcpDeadline, CountsCallsAlikeWithAndWithoutAnArrival) {
  std::latch done{1};
  on_tcp_ranks(3, [&](HostTransport& transport) {
    const int rank = transport.rank();
    std::vector<float> data(10, 1.0f);
    std::vector<float> all(30);
    transport.all_gather(data.data(), all.data(), 10 * sizeof(float), wait_policy());
    meet_and_reduce(transport, 10);
    transport.broadcast(data.data(), 10 * sizeof(float), 0, wait_policy());
    if (rank == 2) return done.wait();
    // Rank 1 waits for rank 0, which must know that it is asked about the call that it is in.
    const auto message = failure_of([&] { reduce(transport, data, milliseconds(rank == 1 ? 300 : 60'000)); });
    EXPECT_THAT(message,
                AllOf(HasSubstr("rank 2 at 127.0.0.1:"), HasSubstr("stopped moving data before the deadline")));
    if (rank == 1) done.count_down();
  });
}

TEST(TcpDeadline, CallsRanksOfAPartByTheirNumbersThere) {
  std::latch done{1};
  on_tcp_ranks(4, [&](HostTransport& transport) {
    const int rank = transport.rank();
    const auto part = transport.split(rank / 2, rank, wait_policy());
    if (rank == 3) return done.wait();
    if (rank != 2) return;
    const auto message = failure_of([&] { part->arrive({.fingerprint = 1}, wait_policy(milliseconds(200))); });
    EXPECT_THAT(message, HasSubstr("rank 1 did not arrive"));
    done.count_down();
  });
}

TEST(TcpAbort, ReachesPeersWithItsReason) {
  on_tcp_ranks(4, [&](HostTransport& transport) {
    if (transport.rank() == 2) {
      transport.abort("the dog ate the batch");
      EXPECT_EQ(failure_of([&] { meet_and_reduce(transport, 1); }), "the dog ate the batch");
      return;
    }
    EXPECT_EQ(failure_of([&] { meet_and_reduce(transport, 1); }), "rank 2 failed: the dog ate the batch");
    EXPECT_EQ(failure_of([&] { meet_and_reduce(transport, 1); }), "rank 2 failed: the dog ate the batch");
  });
}

TEST(TcpAbort, NamesItsRankOnce) {
  on_tcp_ranks(3, [&](HostTransport& transport) {
    if (transport.rank() == 2) return transport.abort("rank 2 failed: the dog ate the batch");
    EXPECT_EQ(failure_of([&] { meet_and_reduce(transport, 1); }), "rank 2 failed: the dog ate the batch");
  });
}

TEST(TcpAbort, KeepsTheFirstReason) {
  on_tcp_ranks(3, [&](HostTransport& transport) {
    if (transport.rank() == 2) {
      transport.abort("the dog ate the batch");
      transport.abort("the cat ate the dog");
    }
    const auto first = failure_of([&] { meet_and_reduce(transport, 1); });
    EXPECT_THAT(first, HasSubstr("the dog ate the batch"));
    transport.abort("what comes of it");
    EXPECT_EQ(failure_of([&] { meet_and_reduce(transport, 1); }), first);
  });
}

TEST(TcpRefusal, ReachesPeersAsItIs) {
  on_tcp_ranks(3, [&](HostTransport& transport) {
    const std::string reason = "rank 7 did not arrive before the deadline";
    if (transport.rank() == 1) transport.refuse_arrival(reason);
    EXPECT_EQ(failure_of([&] { meet_and_reduce(transport, 1); }), reason);
  });
}

TEST(TcpAbort, WakesTheCallOfItsOwnRank) {
  std::latch done{2};
  on_tcp_ranks(3, [&](HostTransport& transport) {
    if (transport.rank() == 0) return done.wait();
    std::thread other;
    if (transport.rank() == 1) other = std::thread([&] { transport.abort("enough"); });
    const Stopwatch stopwatch;
    EXPECT_THAT(failure_of([&] { meet_and_reduce(transport, 1); }), HasSubstr("enough"));
    EXPECT_LT(stopwatch.seconds(), 30.0);
    if (other.joinable()) other.join();
    done.count_down();
  });
}

TEST(TcpFault, OfAMemberEndsASplit) {
  const auto results = on_tcp_processes(3, 2, [](HostTransport& transport) {
    if (transport.rank() == 2) {
      transport.arrive({.fingerprint = 1}, wait_policy());
      raise(SIGKILL);
    }
    const Stopwatch stopwatch;
    const auto message = failure_of([&] {
      // The loss may show while this rank still waits for the others of the arrival.
      transport.arrive({.fingerprint = 1}, wait_policy());
      transport.split(0, 0, wait_policy());
    });
    return text(stopwatch.seconds() < 30.0 ? "soon: " : "late: ", message);
  });
  EXPECT_THAT(results[0], AllOf(HasSubstr("soon: "), HasSubstr("rank 2 at"), HasSubstr("exited or was killed")));
  EXPECT_THAT(results[1], AllOf(HasSubstr("soon: "), HasSubstr("rank 2 at"), HasSubstr("exited or was killed")));
}

// Its peers must not take it for a rank that has left in good order: it still has to report.
TEST(TcpFault, OfAMemberThatCannotConnectItsHost) {
  const auto results = on_tcp_processes(3, 2, [](HostTransport& transport) -> std::string {
    auto world = detail::TcpTransport::connect(transport, {}, wait_policy());
    if (transport.rank() != 2) {
      const Stopwatch stopwatch;
      const auto message =
          failure_of([&] { detail::HierarchicalTransport::connect(std::move(world), {.host = "one"}, wait_policy()); });
      return text(stopwatch.seconds() < 30.0 ? "soon: " : "late: ", message);
    }
    try {
      const rlimit no_more_files{0, 0};
      setrlimit(RLIMIT_NOFILE, &no_more_files);
      detail::HierarchicalTransport::connect(std::move(world), {.host = "one"}, wait_policy());
    } catch (const std::exception&) {
      std::this_thread::sleep_for(milliseconds(200));
      _exit(3);
    }
    return "connected";
  });
  EXPECT_THAT(results[0], AllOf(HasSubstr("soon: "), HasSubstr("rank 2 at"), HasSubstr("exited or was killed")));
  EXPECT_THAT(results[1], AllOf(HasSubstr("soon: "), HasSubstr("rank 2 at"), HasSubstr("exited or was killed")));
}

TEST(TcpLeaving, IsNoFailureForThoseWhoNeedNothingMore) {
  for (int round = 0; round < 50; ++round) {
    on_tcp_ranks(5, [&](HostTransport& transport) {
      std::vector<char> data(400'000, static_cast<char>(transport.rank()));
      transport.arrive({.fingerprint = 1}, wait_policy());
      transport.broadcast(data.data(), data.size(), 0, wait_policy());
      EXPECT_EQ(data.back(), 0);
    });
  }
}

TEST(TcpLeaving, IsNamedByThoseWhoStillWait) {
  on_tcp_ranks(3, [&](HostTransport& transport) {
    meet_and_reduce(transport, 10);
    if (transport.rank() == 1) return;
    EXPECT_THAT(failure_of([&] { meet_and_reduce(transport, 10); }),
                AllOf(HasSubstr("rank 1 at"), HasSubstr("destroyed its communicator")));
  });
}

TEST(TcpControlChannel, GivesNothingRatherThanGarbage) {
  const auto listener = detail::listen_at(any_port_of_loopback());
  detail::ControlChannel sender{{.socket = knock(detail::local_address(listener).name())}};
  ASSERT_TRUE(wait_for(listener.get(), POLLIN));
  detail::SocketAddress remote;
  detail::ControlChannel receiver{{.socket = detail::accept_from(listener, remote)}};
  // More than the connection holds, in messages that no buffer ends with.
  const std::string words(1013, 'w');
  const auto send = [&] { sender.send({.word = detail::ControlMessage::Word::failure, .text = words}); };
  for (int count = 0; count < 50'000; ++count) send();
  std::vector<detail::ControlMessage> messages;
  for (int count = 0; count < 100; ++count) {
    EXPECT_TRUE(receiver.receive(messages));
    send();
  }
  EXPECT_FALSE(messages.empty());
  for (const auto& message : messages) ASSERT_EQ(message.text, words);
}

TEST(LivenessCheck, FollowsTheRanksThatWaitForEachOther) {
  detail::LivenessCheck liveness{5, 0, 1};
  EXPECT_EQ(liveness.silent_rank(), 1);
  liveness.answered(1, 3);
  EXPECT_EQ(liveness.silent_rank(), 3);
  EXPECT_EQ(liveness.silent(), (std::vector<int>{2, 3, 4}));
  liveness.answered(3, 0);
  EXPECT_EQ(liveness.silent_rank(), std::nullopt);
  liveness.answered(3, detail::LivenessCheck::kNoRank);
  EXPECT_EQ(liveness.silent_rank(), std::nullopt);
}

}  // namespace
}  // namespace libtrain::test
