// The rendezvous at tcp://host:port and file:///path, and which processes are refused.

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/comm/detail/tcp/socket.hpp>
#include <libtrain/comm/detail/tcp/tcp_rendezvous.hpp>

#include <tests/comm/tcp_knocks.hpp>
#include <tests/comm/tcp_ranks.hpp>
#include <tests/comm/tcp_relay.hpp>
#include <tests/support/fork_child.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Long enough for every call that must succeed.
constexpr milliseconds kAmple{20'000};

Deadline in(milliseconds time) {
  return Deadline::after(time);
}

// It was free a moment ago; the system assigns other ports first.
int unused_port() {
  return detail::local_address(detail::listen_at(any_port_of_loopback())).port();
}

std::string loopback_url(int port) {
  return text("tcp://127.0.0.1:", port);
}

/// One job of one user. Its ranks are those of `url`.
struct Job {
  std::string url;
  int world_size = 2;
  std::string name = "the job";
  std::uint64_t arguments = 0;
  detail::JobKey key = {.key = detail::GroupKey::random(), .source = "the test"};
  std::vector<std::string> hosts = {};

  std::unique_ptr<detail::TcpRendezvous> of(int rank) const {
    auto own = key;
    own.key.id = detail::open_key(name).id;
    auto endpoint = url.starts_with("file") ? detail::open_file_endpoint(url, {.master_address = "127.0.0.1"})
                                            : detail::open_tcp_endpoint(url);
    return std::make_unique<detail::TcpRendezvous>(std::move(endpoint), detail::RendezvousPlan{.job = name,
                                                                                               .arguments = arguments,
                                                                                               .rank = rank,
                                                                                               .world_size = world_size,
                                                                                               .key = own,
                                                                                               .is_one_host = true,
                                                                                               .hosts = hosts});
  }

  std::vector<std::string> gather(int rank, milliseconds time = kAmple) const {
    const auto rendezvous = of(rank);
    auto records = rendezvous->all_gather(text("record ", rank), in(time));
    rendezvous->leave();
    return records;
  }

  void require_rendezvous() const {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto rendezvous = of(rank);
        for (int round = 0; round < 3; ++round) {
          std::vector<std::string> expected;
          for (int peer = 0; peer < world_size; ++peer) expected.push_back(text(peer, ", round ", round));
          EXPECT_EQ(rendezvous->all_gather(text(rank, ", round ", round), in(kAmple)), expected);
        }
        rendezvous->leave();
      });
    }
    join_all(ranks);
  }
};

Job at_some_port(int world_size = 2) {
  return {.url = loopback_url(unused_port()), .world_size = world_size};
}

TEST(TcpRendezvous, GathersOverTcp) {
  const auto url = loopback_url(unused_port());
  for (const int world_size : {1, 2, 3, 8}) Job{.url = url, .world_size = world_size}.require_rendezvous();
}

TEST(TcpRendezvous, GathersOverAFileAndRemovesIt) {
  const TemporaryFolder folder;
  for (const int world_size : {3, 2}) {
    Job{.url = "file://" + folder / "meet", .world_size = world_size}.require_rendezvous();
    EXPECT_EQ(folder.count(), 0);
  }
}

// Rank 0 of a job that was killed has not removed its file.
TEST(TcpRendezvous, TakesOverTheFileOfAJobThatHasEnded) {
  const TemporaryFolder folder;
  const Job job{.url = "file://" + folder / "meet"};
  {
    const auto killed = job.of(0);
    EXPECT_THROW(killed->all_gather("record", in(milliseconds(500))), CommunicationError);
  }
  // On a busy machine it is complete only after the deadline.
  const auto ample = in(kAmple);
  while ((folder.count() != 1 || std::filesystem::file_size(folder / "meet") == 0) && !ample.expired()) {
    std::this_thread::yield();
  }
  ASSERT_EQ(folder.count(), 1);
  job.require_rendezvous();
}

TEST(TcpRendezvous, LeavesTheFileToTheJobThatUsesIt) {
  const TemporaryFolder folder;
  const Job first{.url = "file://" + folder / "meet", .name = "the first job"};
  std::thread rank_0{[&] { EXPECT_EQ(first.gather(0).size(), 2U); }};
  while (!std::filesystem::exists(folder / "meet") || std::filesystem::file_size(folder / "meet") == 0) {
    std::this_thread::yield();
  }
  Job second = first;
  second.name = "the second job";
  EXPECT_THAT(message_of<EnvironmentError>([&] { second.gather(0); }),
              AllOf(HasSubstr("(the first job)"), HasSubstr(folder / "meet"), HasSubstr("its own file")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { second.gather(1); }), HasSubstr("Another job"));
  EXPECT_EQ(first.gather(1).size(), 2U);
  rank_0.join();
}

// Its rank 0 got no answer while the ranks of the first job were connecting, and replaced the file.
TEST(TcpRendezvous, LeavesTheFileThatAnotherJobHasWritten) {
  const TemporaryFolder folder;
  const auto path = folder / "meet";
  const Job job{.url = "file://" + path, .world_size = 1};
  const auto rendezvous = job.of(0);
  rendezvous->all_gather("record", in(kAmple));
  std::ifstream file{path};
  std::string content{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
  auto& digit = content.at(content.size() - 2);  // of the secret
  digit = digit == '0' ? '1' : '0';
  std::ofstream{path} << content;
  rendezvous->leave();
  EXPECT_EQ(folder.count(), 1);
}

std::string message_for_file(const std::string& path) {
  const Job job{.url = "file://" + path, .world_size = 1};
  return message_of<EnvironmentError>([&] { job.gather(0); });
}

TEST(TcpRendezvous, RefusesAFileThatOthersCanOpen) {
  const TemporaryFolder folder;
  const auto path = folder / "meet";
  write_file(path, "");
  for (const unsigned mode : {0644U, 0620U, 0601U}) {
    std::filesystem::permissions(path, static_cast<std::filesystem::perms>(mode));
    EXPECT_THAT(message_for_file(path),
                AllOf(HasSubstr("'" + path + "'"), HasSubstr("open to other users"), HasSubstr("Delete it")));
  }
  EXPECT_THAT(message_for_file(path), HasSubstr("(mode 0601)"));
}

TEST(TcpRendezvous, RefusesWhatIsNotAFileOfItsOwn) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("elsewhere", folder / "link");
  EXPECT_THAT(message_for_file(folder / "link"), AllOf(HasSubstr(folder / "link"), HasSubstr("not a symbolic link")));
  std::filesystem::create_directory(folder / "folder");
  EXPECT_THAT(message_for_file(folder / "folder"), HasSubstr(folder / "folder"));
  EXPECT_THAT(message_for_file(folder / "none/meet"), HasSubstr("an existing folder"));
  write_file(folder / "thesis", "Chapter 1");
  ASSERT_EQ(chmod((folder / "thesis").c_str(), 0600), 0);
  EXPECT_THAT(message_for_file(folder / "thesis"), HasSubstr("was not written by libtrain"));
  EXPECT_EQ(read_file(folder / "thesis"), "Chapter 1");
}

TEST(TcpRendezvous, SaysThatAPortIsInUse) {
  const auto other = detail::listen_at(any_port_of_loopback());
  const auto address = detail::local_address(other).name();
  EXPECT_THAT(message_of<EnvironmentError>([&] { Job{.url = "tcp://" + address}.gather(0); }),
              AllOf(HasSubstr(address), HasSubstr("in use"), HasSubstr("Choose another port")));
}

TEST(TcpRendezvous, LooksForANameUntilTheDeadline) {
  const Job job{.url = "tcp://no-such-host.invalid:5000"};
  const Stopwatch stopwatch;
  EXPECT_THAT(message_of<CommunicationError>([&] { job.gather(1, milliseconds(1500)); }),
              AllOf(HasSubstr("'no-such-host.invalid'"), HasSubstr("not found")));
  EXPECT_GE(stopwatch.seconds(), 1.5);
}

TEST(TcpRendezvous, RefusesAHostThatIsEveryAddress) {
  for (const std::string host : {"0.0.0.0", "::"}) {
    for (const int rank : {0, 1}) {
      const Job job{.url = text("tcp://", host == "::" ? "[::]" : host, ":", unused_port())};
      EXPECT_THAT(message_of<EnvironmentError>([&] { job.gather(rank); }),
                  AllOf(HasSubstr("'" + host + "'"), HasSubstr("MASTER_ADDR"), HasSubstr("--dist-url")));
    }
  }
}

TEST(TcpRendezvous, SaysThatRank0DoesNotListen) {
  const auto job = at_some_port();
  const Stopwatch stopwatch;
  EXPECT_THAT(message_of<CommunicationError>([&] { job.gather(1, milliseconds(500)); }),
              AllOf(HasSubstr("Rank 0 did not accept a connection at " + job.url), HasSubstr("Connection refused"),
                    HasSubstr("Check that rank 0 is running")));
  EXPECT_LT(stopwatch.seconds(), 10.0);
}

TEST(TcpRendezvous, SaysThatThereIsNoRoute) {
  // connect() fails at once for a broadcast address.
  const Job job{.url = "tcp://255.255.255.255:9"};
  EXPECT_THAT(message_of<CommunicationError>([&] { job.gather(1, milliseconds(300)); }),
              AllOf(HasSubstr("tcp://255.255.255.255:9"), HasSubstr("unreachable")));
}

TEST(TcpRendezvous, SaysThatWhatListensThereDoesNotAnswer) {
  const auto silent = detail::listen_at(any_port_of_loopback());
  const Job job{.url = "tcp://" + detail::local_address(silent).name()};
  const Stopwatch stopwatch;
  EXPECT_THAT(message_of<CommunicationError>([&] { job.gather(1, milliseconds(500)); }),
              AllOf(HasSubstr(job.url), HasSubstr("it does not answer")));
  EXPECT_LT(stopwatch.seconds(), 10.0);
}

TEST(TcpRendezvous, NamesTheRanksThatDidNotConnect) {
  const auto job = at_some_port(5);
  std::thread rank_2{[&] {
    EXPECT_THAT(message_of<CommunicationError>([&] { job.gather(2); }),
                HasSubstr("ranks 1, 3 and 4 of 5 did not connect"));
  }};
  const Stopwatch stopwatch;
  EXPECT_THAT(message_of<CommunicationError>([&] { job.gather(0, milliseconds(1000)); }),
              HasSubstr("ranks 1, 3 and 4 of 5 did not connect to " + job.url + " within"));
  rank_2.join();
  EXPECT_LT(stopwatch.seconds(), 10.0);
}

TEST(TcpRendezvous, WarnsOfALongWaitAndNamesTheHosts) {
  auto job = at_some_port(4);
  job.hosts = {"node-0", "node-0", "node-1", "node-1"};
  std::thread rank_1{[&] { EXPECT_THROW(job.gather(1), CommunicationError); }};
  const CapturedLog log{LogLevel::warning};
  EXPECT_THAT(message_of<CommunicationError>([&] { job.gather(0, milliseconds(5500)); }),
              HasSubstr("ranks 2 and 3 of 4 on node-1 did not connect to " + job.url));
  rank_1.join();
  EXPECT_THAT(log.lines(), Contains(HasSubstr("Still waiting for ranks 2 and 3 of 4 on node-1 at " + job.url)));
}

TEST(TcpRendezvous, NamesTwoProcessesOfOneRank) {
  const auto job = at_some_port(3);
  std::thread rank_0{[&] { EXPECT_EQ(job.gather(0).size(), 3U); }};
  std::promise<void> end;
  std::atomic<int> refused = 0;
  std::vector<std::thread> both;
  for (int process = 0; process < 2; ++process) {
    both.emplace_back([&] {
      try {
        EXPECT_EQ(job.gather(1).size(), 3U);
      } catch (const EnvironmentError& error) {
        EXPECT_THAT(error.what(), HasSubstr("no two processes have the same rank"));
        ++refused;
        end.set_value();
      }
    });
  }
  end.get_future().wait();
  EXPECT_EQ(job.gather(2).size(), 3U);
  join_all(both);
  rank_0.join();
  EXPECT_EQ(refused, 1);
}

TEST(TcpRendezvous, NamesTheWorldSizesThatDiffer) {
  const auto job = at_some_port(2);
  auto larger = job;
  larger.world_size = 3;
  std::thread rank_0{[&] {
    EXPECT_THAT(message_of<EnvironmentError>([&] { job.gather(0); }), HasSubstr("Rank 1 of 3 at 127.0.0.1"));
  }};
  EXPECT_THAT(message_of<EnvironmentError>([&] { larger.gather(1); }), HasSubstr("Rank 1 of 3 at 127.0.0.1"));
  rank_0.join();
}

TEST(TcpRendezvous, TurnsAwayTheRanksOfAnotherJobByName) {
  const auto job = at_some_port();
  auto other = job;
  other.name = "the other job";
  std::thread rank_0{[&] { EXPECT_EQ(job.gather(0).size(), 2U); }};
  EXPECT_THAT(message_of<EnvironmentError>([&] { other.gather(1); }),
              AllOf(HasSubstr("Another job (the job) uses"), HasSubstr("this rank belongs to the other job"),
                    HasSubstr("MASTER_PORT")));
  EXPECT_EQ(job.gather(1).size(), 2U);
  rank_0.join();
}

TEST(TcpRendezvous, PrefersRanksThatWereStartedAlike) {
  auto job = at_some_port(3);
  job.arguments = 1;
  auto other = job;
  other.arguments = 2;
  const CapturedLog log{LogLevel::warning};
  std::thread rank_0{[&] { EXPECT_EQ(job.gather(0).size(), 3U); }};
  std::thread other_rank_1{[&] {
    EXPECT_THAT(message_of<EnvironmentError>([&] { other.gather(1); }),
                HasSubstr("Another process has already connected as rank 1"));
  }};
  std::thread other_rank_2{[&] { EXPECT_EQ(other.gather(2).size(), 3U); }};
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(job.gather(1).size(), 3U);
  rank_0.join();
  other_rank_1.join();
  other_rank_2.join();
  EXPECT_THAT(log.lines(),
              Contains(AllOf(HasSubstr("Rank 2 at"), HasSubstr("different command line arguments than rank 0"))));
}

TEST(TcpRendezvous, TurnsAwayRanksWithAnotherSecret) {
  const auto job = at_some_port();
  auto stranger = job;
  stranger.key = {.key = detail::GroupKey::random(), .source = "another secret"};
  const CapturedLog log{LogLevel::warning};
  std::thread rank_0{[&] { EXPECT_EQ(job.gather(0).size(), 2U); }};
  EXPECT_THAT(message_of<EnvironmentError>([&] { stranger.gather(1); }),
              AllOf(HasSubstr("has a different job secret"), HasSubstr("another secret"), HasSubstr("the test"),
                    HasSubstr("LIBTRAIN_SECRET")));
  // Nor on this host with none.
  stranger.key = {.key = detail::open_key(job.name)};
  EXPECT_THROW(stranger.gather(1), EnvironmentError);
  EXPECT_EQ(job.gather(1).size(), 2U);
  rank_0.join();
  EXPECT_THAT(log.lines(), Contains(HasSubstr("it does not have the job's secret")));
}

TEST(TcpRendezvous, SaysWhyARankThatIsMissingWasRefused) {
  const auto job = at_some_port();
  auto stranger = job;
  stranger.key = {.key = detail::GroupKey::random(), .source = "another secret"};
  std::thread rank_1{[&] { EXPECT_THROW(stranger.gather(1), EnvironmentError); }};
  EXPECT_THAT(message_of<CommunicationError>([&] { job.gather(0, milliseconds(2000)); }),
              AllOf(HasSubstr("rank 1 of 2 did not connect to " + job.url + " within"),
                    HasSubstr("connected as rank 1 was refused, because it does not have the job's secret")));
  rank_1.join();
}

TEST(TcpRendezvous, ARankThatDisconnectsMayReconnect) {
  const auto job = at_some_port(3);
  std::thread rank_0{[&] { EXPECT_EQ(job.gather(0).size(), 3U); }};
  EXPECT_THROW(job.gather(1, milliseconds(500)), CommunicationError);
  std::thread rank_1{[&] { EXPECT_EQ(job.gather(1).size(), 3U); }};
  EXPECT_EQ(job.gather(2).size(), 3U);
  rank_0.join();
  rank_1.join();
}

TEST(TcpRendezvous, RanksFindARank0ThatIsStartedAgain) {
  const TemporaryFolder folder;
  for (const auto& url : {loopback_url(unused_port()), "file://" + folder / "meet"}) {
    const Job job{.url = url, .world_size = 3};
    const pid_t killed = fork_child();
    if (killed == 0) {
      alarm(60);
      job.gather(0);
      _exit(0);
    }
    std::thread rank_1{[&] { EXPECT_EQ(job.gather(1).size(), 3U); }};
    // Long enough for rank 1 to connect to it; the test holds even if it has not.
    std::this_thread::sleep_for(milliseconds(300));
    kill(killed, SIGKILL);
    waitpid(killed, nullptr, 0);
    std::thread rank_2{[&] { EXPECT_EQ(job.gather(2).size(), 3U); }};
    EXPECT_EQ(job.gather(0).size(), 3U);
    rank_1.join();
    rank_2.join();
  }
}

TEST(TcpRendezvous, EndsOnAllRanksIfOneExitsAfterTheFirstTable) {
  const auto job = at_some_port(3);
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1, 2}) {
    ranks.emplace_back([&, rank] {
      const auto rendezvous = job.of(rank);
      rendezvous->all_gather("first", in(kAmple));
      if (rank == 2) return;
      EXPECT_THAT(message_of<CommunicationError>([&] { rendezvous->all_gather("second", in(kAmple)); }),
                  HasSubstr("Rank 2 at 127.0.0.1:"));
    });
  }
  join_all(ranks);
}

TEST(TcpRendezvous, IsNotStoppedByStrangers) {
  const auto job = at_some_port();
  const auto address = job.url.substr(std::string{"tcp://"}.size());
  const SilentLog quiet;
  std::thread rank_0{[&] { EXPECT_EQ(job.gather(0).size(), 2U); }};
  while (!detail::job_at(detail::SocketAddress::parse(address).value())) std::this_thread::yield();
  std::vector<detail::FileDescriptor> silent;
  for (int count = 0; count < 300; ++count) silent.push_back(knock(address));
  for (int count = 0; count < 100; ++count) {
    const auto gone = knock(address);
    static_cast<void>(send(gone.get(), "GET /", 5, MSG_NOSIGNAL));
  }
  const auto noise = knock(address);
  static_cast<void>(send(noise.get(), std::string(1 << 16, '\xff').data(), 1 << 16, MSG_NOSIGNAL));
  EXPECT_EQ(job.gather(1).size(), 2U);
  rank_0.join();
}

// A recording of one rendezvous is of no use for another.
TEST(TcpRendezvous, IsNotFooledByARecordedHandshake) {
  const auto job = at_some_port();
  const int port = detail::SocketAddress::parse(job.url.substr(6)).value().port();
  std::string recorded;
  const SilentLog quiet;
  {
    Relay relay{port, [&](std::string& bytes) { recorded += bytes; }};
    std::thread rank_0{[&] { job.gather(0); }};
    auto through_relay = job;
    through_relay.url = "tcp://" + relay.address().name();
    through_relay.gather(1);
    rank_0.join();
  }
  ASSERT_GT(recorded.size(), sizeof(detail::Hello) + sizeof(detail::Digest));
  std::thread rank_0{[&] { EXPECT_EQ(job.gather(0).size(), 2U); }};
  const auto address = detail::SocketAddress::parse(job.url.substr(6)).value();
  while (!detail::job_at(address)) std::this_thread::yield();
  const auto stranger = knock(address.name());
  say(stranger, recorded);
  std::string answer(64, '\0');
  EXPECT_TRUE(wait_for(stranger.get(), POLLIN));
  EXPECT_EQ(recv(stranger.get(), answer.data(), answer.size(), MSG_WAITALL), 64);
  EXPECT_TRUE(is_dropped(stranger));
  EXPECT_EQ(job.gather(1).size(), 2U);
  rank_0.join();
}

// An attacker in the middle passes on all bytes, and cannot change one unnoticed.
TEST(TcpRendezvous, NoticesEveryBitThatIsChangedOnTheWay) {
  const auto job = at_some_port();
  const int port = detail::SocketAddress::parse(job.url.substr(6)).value().port();
  const SilentLog quiet;
  // Hello, proof, and the record with its length and its tag.
  const std::size_t bytes = sizeof(detail::Hello) + sizeof(detail::Digest) + 4 + std::string{"record 1"}.size() + 16;
  for (std::size_t changed = 0; changed < bytes; changed += 3) {
    std::size_t passed = 0;
    Relay relay{port, [&](std::string& part) {
                  if (changed >= passed && changed < passed + part.size()) part[changed - passed] ^= 1;
                  passed += part.size();
                }};
    auto through_relay = job;
    through_relay.url = "tcp://" + relay.address().name();
    std::thread rank_0{[&] {
      try {
        const auto records = job.gather(0, milliseconds(700));
        EXPECT_EQ(records, (std::vector<std::string>{"record 0", "record 1"})) << "byte " << changed;
      } catch (const Error&) {
        // Noticed.
      }
    }};
    try {
      EXPECT_EQ(through_relay.gather(1, milliseconds(300)).size(), 2U) << "byte " << changed;
    } catch (const Error&) {
      // Noticed.
    }
    rank_0.join();
    EXPECT_GT(passed, changed);
  }
}

TEST(TcpRendezvous, RefusesOtherUrls) {
  EXPECT_THROW(detail::open_tcp_endpoint("tcp://localhost"), UsageError);
}

}  // namespace
}  // namespace libtrain::test
