// Meeting at tcp://host:port and file:///path.

#include <atomic>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/comm/tcp/socket.hpp>
#include <libtrain/comm/tcp/store_rendezvous.hpp>

#include <tests/comm/tcp_ranks.hpp>

namespace libtrain::testing {
namespace {

using detail::SocketAddress;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline in(milliseconds time) {
  return Deadline::after(time);
}

// Free a moment ago; the system hands out others first.
int unused_port() {
  const auto listener = detail::listen_at(SocketAddress::parse("127.0.0.1:1")->with_port(0));
  return detail::local_address(listener).port();
}

class TemporaryFile {
 public:
  TemporaryFile() : folder_(::testing::TempDir() + "libtrain-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) throw EnvironmentError("mkdtemp failed.");
  }
  ~TemporaryFile() { std::filesystem::remove_all(folder_); }
  TemporaryFile(const TemporaryFile&) = delete;  // removes the folder
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::string path() const { return folder_ + "/notes"; }
  std::string url() const { return "file://" + path(); }

 private:
  std::string folder_;
};

template <typename E, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing of that kind was thrown";
}

void run_job(const std::string& url, int world_size) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      StoreRendezvous notes{{.url = url, .rank = rank, .world_size = world_size}, in(std::chrono::seconds(60))};
      const auto transport =
          TcpTransport::connect(notes, rank, world_size, {.master_address = "127.0.0.1"}, patience());
      int sum = 1;
      transport->arrive({.fingerprint = 1}, patience());
      transport->all_reduce(&sum, &sum, 1, DataType::int32, ReduceOp::sum, patience());
      EXPECT_EQ(sum, world_size);
    });
  }
  join_all(threads);
}

TEST(StoreRendezvous, MeetsOverTcp) {
  const auto url = text("tcp://127.0.0.1:", unused_port());
  run_job(url, 3);
  run_job(url, 2);
}

TEST(StoreRendezvous, MeetsOverAFileWhichIsGoneAfterwards) {
  const TemporaryFile file;
  run_job(file.url(), 3);
  EXPECT_FALSE(std::filesystem::exists(file.path()));
  run_job(file.url(), 2);
}

TEST(StoreRendezvous, RefusesAFileOfAnEarlierJob) {
  const TemporaryFile file;
  const auto copy = file.path() + ".kept";
  {
    StoreRendezvous notes{{.url = file.url(), .rank = 0, .world_size = 1}, in(std::chrono::seconds(10))};
    notes.set("rank 0", "old");
    std::filesystem::copy_file(file.path(), copy);
  }
  std::filesystem::rename(copy, file.path());
  StoreRendezvous notes{{.url = file.url(), .rank = 0, .world_size = 1}, in(std::chrono::seconds(10))};
  EXPECT_THAT(message_of<EnvironmentError>([&] { notes.set("rank 0", "new"); }),
              AllOf(HasSubstr(file.path()), HasSubstr("left from an earlier job"), HasSubstr("remove it")));
}

TEST(StoreRendezvous, SaysThatAPortIsTaken) {
  const auto other = detail::listen_at(SocketAddress::parse("127.0.0.1:1")->with_port(0));
  const auto address = detail::local_address(other).name();
  const auto message = message_of<EnvironmentError>([&] {
    StoreRendezvous notes{{.url = "tcp://" + address, .rank = 0, .world_size = 2}, in(std::chrono::seconds(10))};
  });
  EXPECT_THAT(message, AllOf(HasSubstr(address), HasSubstr("taken"), HasSubstr("choose another port")));
}

TEST(StoreRendezvous, SaysThatAHostIsUnknown) {
  const auto message = message_of<EnvironmentError>([&] {
    StoreRendezvous notes{{.url = "tcp://no-such-host.invalid:5000", .rank = 1, .world_size = 2},
                          in(milliseconds(300))};
  });
  EXPECT_THAT(message, AllOf(HasSubstr("'no-such-host.invalid'"), HasSubstr("not found")));
}

TEST(StoreRendezvous, SaysThatNobodyServes) {
  const auto url = text("tcp://127.0.0.1:", unused_port());
  const Stopwatch stopwatch;
  const auto message = message_of<CommunicationError>(
      [&] { StoreRendezvous notes{{.url = url, .rank = 1, .world_size = 2}, in(milliseconds(1000))}; });
  EXPECT_THAT(message, AllOf(HasSubstr(url), HasSubstr("rank 0 did not start")));
  EXPECT_LT(stopwatch.seconds(), 10.0);
}

TEST(StoreRendezvous, NamesTheRankThatDidNotRegister) {
  const auto url = text("tcp://127.0.0.1:", unused_port());
  StoreRendezvous notes{{.url = url, .rank = 0, .world_size = 2}, in(std::chrono::seconds(10))};
  const auto message = message_of<CommunicationError>([&] { notes.get("rank 1", in(milliseconds(300))); });
  EXPECT_THAT(message, AllOf(HasSubstr("rank 1 was not registered at " + url), HasSubstr("0.3 s")));
}

TEST(StoreRendezvous, NamesTwoProcessesOfOneRank) {
  const auto url = text("tcp://127.0.0.1:", unused_port());
  StoreRendezvous notes{{.url = url, .rank = 0, .world_size = 2}, in(std::chrono::seconds(10))};
  StoreRendezvous other{{.url = url, .rank = 1, .world_size = 2}, in(std::chrono::seconds(10))};
  notes.set("rank 1", "one");
  EXPECT_THAT(message_of<EnvironmentError>([&] { other.set("rank 1", "two"); }), HasSubstr("the same rank"));
}

TEST(StoreRendezvous, KeepsRestartsUnderTheAgentApart) {
  const auto url = text("tcp://127.0.0.1:", unused_port());
  const StoreRendezvous agent{{.url = url, .rank = 0, .world_size = 1}, in(std::chrono::seconds(10))};
  Launch launch;
  launch.rendezvous.value = url;
  for (const auto* restart : {"0", "1"}) {
    const Environment environment{{{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", restart}}};
    StoreRendezvous notes{StorePlace::of(launch, environment), in(std::chrono::seconds(10))};
    notes.set("rank 0", restart);
    EXPECT_EQ(notes.get("rank 0", in(std::chrono::seconds(10))), restart);
  }
}

TEST(StoreRendezvous, RefusesOtherUrls) {
  EXPECT_THROW((StoreRendezvous{{.url = "http://localhost:80"}, in(milliseconds(100))}), UsageError);
  EXPECT_THROW((StoreRendezvous{{.url = "tcp://localhost"}, in(milliseconds(100))}), UsageError);
  EXPECT_THROW((StoreRendezvous{{.url = "file:///no/such/folder/notes"}, in(milliseconds(100))}), EnvironmentError);
}

}  // namespace
}  // namespace libtrain::testing
