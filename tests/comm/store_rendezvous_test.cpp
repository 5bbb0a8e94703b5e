// Meeting at tcp://host:port and file:///path.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/comm/tcp/socket.hpp>
#include <libtrain/comm/tcp/store_rendezvous.hpp>

#include <tests/comm/tcp_knocks.hpp>
#include <tests/comm/tcp_ranks.hpp>
#include <tests/comm/tcp_relay.hpp>

namespace libtrain::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Long enough for everything that shall succeed.
constexpr milliseconds kAmple{20'000};

Deadline in(milliseconds time) {
  return Deadline::after(time);
}

// Free a moment ago; the system hands out others first.
int unused_port() {
  return detail::local_address(detail::listen_at(any_port_of_loopback())).port();
}

std::string loopback_url(int port) {
  return text("tcp://127.0.0.1:", port);
}

class TemporaryFile {
 public:
  TemporaryFile() : folder_(::testing::TempDir() + "libtrain-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) throw EnvironmentError("mkdtemp failed.");
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
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

void run_job(const StorePlace& place) {
  std::vector<std::thread> threads;
  const int world_size = place.world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      auto own = place;
      own.rank = rank;
      StoreRendezvous notes{own, in(seconds(60))};
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
  const auto url = loopback_url(unused_port());
  run_job({.url = url, .world_size = 3});
  run_job({.url = url, .world_size = 2});
}

TEST(StoreRendezvous, MeetsOverAFileWhichIsGoneAfterwards) {
  const TemporaryFile file;
  run_job({.url = file.url(), .world_size = 3});
  EXPECT_FALSE(std::filesystem::exists(file.path()));
  run_job({.url = file.url(), .world_size = 2});
}

// Not left to c10d's last user: two that leave at the same time take each other for it.
TEST(StoreRendezvous, RemovesTheFileWhenAllHaveReadIt) {
  const TemporaryFile file;
  StoreRendezvous rendezvous{{.url = file.url(), .rank = 0, .world_size = 2}, in(kAmple)};
  rendezvous.set("rank 0", "secret", in(kAmple));
  EXPECT_TRUE(std::filesystem::exists(file.path()));
  rendezvous.replace("rank 0", "no secret");
  EXPECT_FALSE(std::filesystem::exists(file.path()));
}

// A FileStore that goes counts itself in the file, which it would make anew, open to all users, had rank 0 just removed
// it: the next job would be refused.
TEST(StoreRendezvous, ARankThatHasLeftDoesNotTouchTheFile) {
  const TemporaryFile file;
  StoreRendezvous first{{.url = file.url(), .rank = 0, .world_size = 2}, in(kAmple)};
  auto late = std::make_unique<StoreRendezvous>(StorePlace{.url = file.url(), .rank = 1, .world_size = 2}, in(kAmple));
  late->set("rank 1", "nothing", in(kAmple));
  const auto bytes = std::filesystem::file_size(file.path());
  late->leave();
  late.reset();
  EXPECT_EQ(std::filesystem::file_size(file.path()), bytes);
}

TEST(StoreRendezvous, RefusesAFileOfAnEarlierJob) {
  const TemporaryFile file;
  const auto copy = file.path() + ".kept";
  {
    StoreRendezvous notes{{.url = file.url(), .rank = 0, .world_size = 1}, in(kAmple)};
    notes.set("rank 0", "old", in(kAmple));
    std::filesystem::copy_file(file.path(), copy);
  }
  std::filesystem::rename(copy, file.path());
  StoreRendezvous notes{{.url = file.url(), .rank = 0, .world_size = 1}, in(kAmple)};
  EXPECT_THAT(message_of<EnvironmentError>([&] { notes.set("rank 0", "new", in(kAmple)); }),
              AllOf(HasSubstr(file.path()), HasSubstr("left from an earlier job"), HasSubstr("remove it")));
}

std::string trouble_with_file(const TemporaryFile& file) {
  return message_of<EnvironmentError>(
      [&] { StoreRendezvous notes{{.url = file.url(), .rank = 0, .world_size = 1}, in(kAmple)}; });
}

TEST(StoreRendezvous, RefusesAFileThatOthersCanOpen) {
  const TemporaryFile file;
  std::ofstream{file.path()};
  for (const unsigned mode : {0644U, 0620U, 0601U}) {
    std::filesystem::permissions(file.path(), static_cast<std::filesystem::perms>(mode));
    EXPECT_THAT(trouble_with_file(file),
                AllOf(HasSubstr("'" + file.path() + "'"), HasSubstr("open to other users"), HasSubstr("delete it")));
  }
  EXPECT_THAT(trouble_with_file(file), HasSubstr("(mode 0601)"));
}

TEST(StoreRendezvous, RefusesWhatIsNoFile) {
  const TemporaryFile link;
  std::filesystem::create_symlink("elsewhere", link.path());
  EXPECT_THAT(trouble_with_file(link), AllOf(HasSubstr("'" + link.path() + "'"), HasSubstr("no symbolic link")));
  const TemporaryFile folder;
  std::filesystem::create_directory(folder.path());
  EXPECT_THAT(trouble_with_file(folder), HasSubstr("'" + folder.path() + "'"));
}

TEST(StoreRendezvous, SaysThatAFileIsLocked) {
  const TemporaryFile file;
  const detail::FileDescriptor lock{open(file.path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  const Stopwatch stopwatch;
  const auto message = message_of<CommunicationError>(
      [&] { StoreRendezvous notes{{.url = file.url(), .rank = 0, .world_size = 2}, in(milliseconds(500))}; });
  EXPECT_THAT(message, AllOf(HasSubstr(file.url()), HasSubstr("did not answer within"), HasSubstr("holds its lock")));
  EXPECT_LT(stopwatch.seconds(), 10.0);
  // The thread that waits for the lock shall not find the file when it gets it, nor make a new one.
  std::filesystem::remove(file.path());
}

TEST(StoreRendezvous, SaysThatAPortIsTaken) {
  const auto other = detail::listen_at(any_port_of_loopback());
  const auto address = detail::local_address(other).name();
  const auto message = message_of<EnvironmentError>(
      [&] { StoreRendezvous notes{{.url = "tcp://" + address, .rank = 0, .world_size = 2}, in(kAmple)}; });
  EXPECT_THAT(message, AllOf(HasSubstr(address), HasSubstr("taken"), HasSubstr("choose another port")));
}

TEST(StoreRendezvous, SaysThatAHostIsUnknown) {
  const auto message = message_of<EnvironmentError>([&] {
    StoreRendezvous notes{{.url = "tcp://no-such-host.invalid:5000", .rank = 1, .world_size = 2},
                          in(milliseconds(300))};
  });
  EXPECT_THAT(message, AllOf(HasSubstr("'no-such-host.invalid'"), HasSubstr("not found")));
}

TEST(StoreRendezvous, RefusesAHostThatIsEveryAddress) {
  for (const std::string host : {"0.0.0.0", "::"}) {
    for (const int rank : {0, 1}) {
      const auto message = message_of<EnvironmentError>([&] {
        const auto place = text("tcp://", host == "::" ? "[::]" : host, ":", unused_port());
        StoreRendezvous notes{{.url = place, .rank = rank, .world_size = 2}, in(kAmple)};
      });
      EXPECT_THAT(message, AllOf(HasSubstr("'" + host + "'"), HasSubstr("MASTER_ADDR"), HasSubstr("--dist-url")));
    }
  }
}

TEST(StoreRendezvous, SaysThatNobodyServes) {
  const auto url = loopback_url(unused_port());
  const Stopwatch stopwatch;
  const auto message = message_of<CommunicationError>(
      [&] { StoreRendezvous notes{{.url = url, .rank = 1, .world_size = 2}, in(milliseconds(1000))}; });
  EXPECT_THAT(message, AllOf(HasSubstr(url), HasSubstr("rank 0 did not start"), HasSubstr("Connection refused")));
  EXPECT_LT(stopwatch.seconds(), 10.0);
}

TEST(StoreRendezvous, SaysThatThereIsNoRoute) {
  // To an address for all hosts no connection can even begin.
  const auto message = message_of<CommunicationError>([&] {
    StoreRendezvous notes{{.url = "tcp://255.255.255.255:9", .rank = 1, .world_size = 2}, in(milliseconds(300))};
  });
  EXPECT_THAT(message, AllOf(HasSubstr("tcp://255.255.255.255:9"), HasSubstr("unreachable")));
}

TEST(StoreRendezvous, SaysThatWhatListensThereDoesNotAnswer) {
  const auto silent = detail::listen_at(any_port_of_loopback());
  const auto url = "tcp://" + detail::local_address(silent).name();
  const Stopwatch stopwatch;
  const auto message = message_of<CommunicationError>(
      [&] { StoreRendezvous notes{{.url = url, .rank = 1, .world_size = 2}, in(milliseconds(2000))}; });
  EXPECT_THAT(message, AllOf(HasSubstr(url + " did not answer within"), HasSubstr("rank 0 is stopped"),
                             HasSubstr("another program listens there"), HasSubstr("choose another port")));
  EXPECT_LT(stopwatch.seconds(), 10.0);
}

TEST(StoreRendezvous, SaysThatTheServerHasStopped) {
  const int port = unused_port();
  const StoreRendezvous server{{.url = loopback_url(port), .rank = 0, .world_size = 3}, in(kAmple)};
  Relay relay{port};
  StoreRendezvous writer{{.url = relay.url(), .rank = 1, .world_size = 3}, in(kAmple)};
  StoreRendezvous reader{{.url = relay.url(), .rank = 2, .world_size = 3}, in(kAmple)};
  writer.set("rank 1", "one", in(kAmple));
  EXPECT_EQ(reader.get("rank 1", in(kAmple)), "one");
  relay.stop();
  const Stopwatch stopwatch;
  const auto silence = AllOf(HasSubstr(relay.url() + " did not answer within"), HasSubstr("rank 0 is stopped"));
  EXPECT_THAT(message_of<CommunicationError>([&] { writer.set("address of rank 1", "here", in(milliseconds(300))); }),
              AllOf(silence, HasSubstr("registered address of rank 1")));
  EXPECT_THAT(message_of<CommunicationError>([&] { reader.get("rank 1", in(milliseconds(300))); }),
              AllOf(silence, HasSubstr("asked for rank 1")));
  // A connection on which a call was left behind is of no further use, but nobody waits longer for that.
  EXPECT_THAT(message_of<CommunicationError>([&] { writer.get("rank 1", in(milliseconds(300))); }), silence);
  EXPECT_LT(stopwatch.seconds(), 15.0);
}

TEST(StoreRendezvous, IsNotStoppedByStrangers) {
  const int port = unused_port();
  StoreRendezvous notes{{.url = loopback_url(port), .rank = 0, .world_size = 2}, in(kAmple)};
  const auto address = text("127.0.0.1:", port);
  const auto silent = knock(address);
  const auto browser = knock(address);
  say(browser, "GET / HTTP/1.1\r\nHost: " + std::string(100, 'h') + "\r\n\r\n");
  const auto noise = knock(address);
  say(noise, std::string(1 << 16, '\xff'));
  StoreRendezvous other{{.url = loopback_url(port), .rank = 1, .world_size = 2}, in(kAmple)};
  other.set("rank 1", "one", in(kAmple));
  EXPECT_EQ(notes.get("rank 1", in(kAmple)), "one");
}

TEST(StoreRendezvous, NamesTheRankThatDidNotRegister) {
  const auto url = loopback_url(unused_port());
  const TemporaryFile file;
  for (const auto& place : {url, file.url()}) {
    StoreRendezvous notes{{.url = place, .rank = 0, .world_size = 2}, in(kAmple)};
    const Stopwatch stopwatch;
    const auto message = message_of<CommunicationError>([&] { notes.get("rank 1", in(milliseconds(300))); });
    EXPECT_THAT(message, AllOf(HasSubstr("rank 1 was not registered at " + place), HasSubstr("did not start")));
    EXPECT_LT(stopwatch.seconds(), 10.0);
  }
}

TEST(StoreRendezvous, NamesTwoProcessesOfOneRank) {
  const auto url = loopback_url(unused_port());
  StoreRendezvous notes{{.url = url, .rank = 0, .world_size = 2}, in(kAmple)};
  StoreRendezvous other{{.url = url, .rank = 1, .world_size = 2}, in(kAmple)};
  notes.set("rank 1", "one", in(kAmple));
  EXPECT_THAT(message_of<EnvironmentError>([&] { other.set("rank 1", "two", in(kAmple)); }),
              HasSubstr("the same rank"));
}

TEST(StoreRendezvous, KeepsRestartsUnderTheAgentApart) {
  const auto url = loopback_url(unused_port());
  const StoreRendezvous agent{{.url = url, .rank = 0, .world_size = 1}, in(kAmple)};
  Launch launch;
  launch.rendezvous.value = url;
  for (const auto* restart : {"0", "1"}) {
    const Environment environment{{{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", restart}}};
    StoreRendezvous notes{StorePlace::of(launch, environment), in(kAmple)};
    notes.set("rank 0", restart, in(kAmple));
    EXPECT_EQ(notes.get("rank 0", in(kAmple)), restart);
  }
}

TEST(StoreRendezvous, LeavesNoSecretWithTheAgent) {
  const auto url = loopback_url(unused_port());
  const StoreRendezvous agent{{.url = url, .rank = 0, .world_size = 1}, in(kAmple)};
  const StorePlace place{.url = url, .world_size = 2, .agent_hosts_store = true, .prefix = "job"};
  run_job(place);
  StoreRendezvous notes{place, in(kAmple)};
  const auto note = notes.get("rank 0", in(kAmple));
  ASSERT_GT(note.size(), sizeof(detail::GroupKey));
  EXPECT_EQ(note.substr(note.size() - sizeof(detail::GroupKey)), std::string(sizeof(detail::GroupKey), '\0'));
}

TEST(StoreRendezvous, RefusesOtherUrls) {
  EXPECT_THROW((StoreRendezvous{{.url = "http://localhost:80"}, in(kAmple)}), UsageError);
  EXPECT_THROW((StoreRendezvous{{.url = "tcp://localhost"}, in(kAmple)}), UsageError);
  EXPECT_THROW((StoreRendezvous{{.url = "file:///no/such/folder/notes"}, in(kAmple)}), EnvironmentError);
}

}  // namespace
}  // namespace libtrain::testing
