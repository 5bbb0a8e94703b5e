// Other processes that connect to the listeners of a job's ranks.

#include <cerrno>
#include <cstring>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/log.hpp>
#include <libtrain/comm/detail/tcp/mesh_connector.hpp>

#include <tests/comm/tcp_knocks.hpp>
#include <tests/comm/tcp_ranks.hpp>
#include <tests/support/log_sinks.hpp>

namespace libtrain::test {
namespace {

using detail::Channel;
using detail::FileDescriptor;
using detail::GroupKey;
using detail::Handshake;
using detail::SocketAddress;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A connection may stay unauthenticated for this long, so a job that takes longer has waited for one.
constexpr double kGuestTime_s = 10.0;

// Empty if the handshake succeeds.
std::string reason_of(Handshake& handshake) {
  while (handshake.state() == Handshake::State::underway) {
    if (!wait_for(handshake.descriptor(), handshake.events())) return "waited too long";
    handshake.advance();
  }
  return handshake.state() == Handshake::State::done ? "" : handshake.reason();
}

Handshake call_as(const std::string& address, const GroupKey& key, int from, Channel channel = Channel::data) {
  const detail::Hello hello{.group = key.id, .from = static_cast<std::uint32_t>(from), .to = 0, .channel = channel};
  return Handshake::call(knock(address), hello, key.secret);
}

std::string reason_as(const std::string& address, const GroupKey& key, int from) {
  auto handshake = call_as(address, key, from);
  return reason_of(handshake);
}

/// Three ranks. The last one does not connect before `go_`, so that the others still listen.
class TcpStrangers : public ::testing::Test {
 protected:
  /// Shows a test the records of the ranks, and makes rank 2 wait for `go_` before it connects.
  class Watched : public detail::Rendezvous {
   public:
    Watched(std::unique_ptr<detail::Rendezvous> rendezvous, std::function<void(const std::vector<std::string>&)> watch)
        : rendezvous_(std::move(rendezvous)), watch_(std::move(watch)) {}
    std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) override {
      auto records = rendezvous_->all_gather(own, deadline);
      watch_(records);
      return records;
    }
    void leave() noexcept override { rendezvous_->leave(); }

   private:
    std::unique_ptr<detail::Rendezvous> rendezvous_;
    std::function<void(const std::vector<std::string>&)> watch_;
  };

  TcpStrangers() {
    for (int rank = 0; rank < 3; ++rank) threads_.emplace_back([this, rank] { run(rank); });
    auto told = told_.get_future().get();
    const auto& introduction = told[0];
    std::memcpy(&key_, introduction.data() + introduction.size() - sizeof(key_), sizeof(key_));
    address_ = told[1].c_str();
  }

  ~TcpStrangers() override { finish(); }

  void run(int rank) {
    std::vector<std::string> of_rank_0;
    Watched rendezvous{loopback_.of(rank), [&](const std::vector<std::string>& records) {
                         of_rank_0.push_back(records.front());
                         if (of_rank_0.size() < 2) return;
                         if (rank == 0) told_.set_value(of_rank_0);
                         if (rank == 2) go_.get_future().wait();
                       }};
    const auto transport = detail::TcpTransport::connect(rendezvous, rank, 3, {}, wait_policy());
    ASSERT_TRUE(transport->arrive({.fingerprint = 1}, wait_policy()));
    if (rank == 0) connected_.set_value();
    int sum = rank;
    transport->all_reduce(&sum, &sum, 1, DataType::int32, ReduceOp::sum, wait_policy());
    EXPECT_EQ(sum, 3);
  }

  /// Lets rank 2 connect, and waits for the end of the job.
  void finish() {
    if (threads_.empty()) return;
    go_.set_value();
    join_all(threads_);
    threads_.clear();
  }

  LoopbackRendezvous loopback_{3};
  std::promise<std::vector<std::string>> told_;  // the records of rank 0: its introduction, its address
  std::promise<void> go_;
  std::promise<void> connected_;
  std::vector<std::thread> threads_;
  std::string address_;
  GroupKey key_;
  CapturedLog log_{LogLevel::warning};
};

TEST_F(TcpStrangers, WithGarbageAreDropped) {
  const auto request = "GET / HTTP/1.1\r\nHost: " + std::string(100, 'h') + "\r\n\r\n";
  for (const auto& words : {std::string(sizeof(detail::Hello), '\0'), std::string(1 << 16, 'x'), request}) {
    const auto stranger = knock(address_);
    say(stranger, words);
    EXPECT_TRUE(is_dropped(stranger));
  }
}

TEST_F(TcpStrangers, AreReportedInOneWarning) {
  for (int count = 0; count < 5; ++count) {
    const auto stranger = knock(address_);
    say(stranger, std::string(sizeof(detail::Hello), 'x'));
    EXPECT_TRUE(is_dropped(stranger));
  }
  finish();
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("Dropped a connection from 127.0.0.1:")));
}

TEST_F(TcpStrangers, WhoStaySilentDoNotStopTheJob) {
  std::vector<FileDescriptor> strangers;
  for (int count = 0; count < 100; ++count) strangers.push_back(knock(address_));
  strangers.push_back(knock(address_));
  say(strangers.back(), "Tltrain1");
  const Stopwatch stopwatch;
  finish();
  EXPECT_LT(stopwatch.seconds(), kGuestTime_s);
  for (const auto& stranger : strangers) EXPECT_TRUE(is_dropped(stranger));
}

TEST_F(TcpStrangers, WhoTrickleDoNotStopTheJob) {
  const detail::Hello hello{.magic = detail::kHelloMagic, .group = key_.id, .from = 2, .to = 0};
  const std::string words{reinterpret_cast<const char*>(&hello), sizeof(hello)};
  // More than there is room for.
  std::vector<FileDescriptor> strangers;
  for (int count = 0; count < 30; ++count) strangers.push_back(knock(address_));
  std::promise<void> job;
  std::thread trickler([&, ended = job.get_future()] {
    for (const char word : words) {
      for (const auto& stranger : strangers) static_cast<void>(send(stranger.get(), &word, 1, MSG_NOSIGNAL));
      if (ended.wait_for(milliseconds(100)) == std::future_status::ready) return;
    }
  });
  const Stopwatch stopwatch;
  finish();
  EXPECT_LT(stopwatch.seconds(), kGuestTime_s);
  job.set_value();
  trickler.join();
}

TEST_F(TcpStrangers, WithAnotherSecretAreDropped) {
  auto wrong = key_;
  wrong.secret[31] ^= 1;
  EXPECT_THAT(reason_as(address_, wrong, 2), HasSubstr("secret"));
  // One that ignores the answerer's proof and sends its own.
  const auto stranger = knock(address_);
  const detail::Hello hello{.magic = detail::kHelloMagic, .group = key_.id, .from = 2, .to = 0};
  say(stranger, {reinterpret_cast<const char*>(&hello), sizeof(hello)});
  say(stranger, std::string(32, 'p'));
  std::array<char, 64> challenge{};
  EXPECT_TRUE(wait_for(stranger.get(), POLLIN));
  EXPECT_EQ(recv(stranger.get(), challenge.data(), challenge.size(), MSG_WAITALL), 64);
  EXPECT_TRUE(is_dropped(stranger));
}

TEST_F(TcpStrangers, OfAnotherGroupOrWithAnImpossibleRankAreDropped) {
  EXPECT_NE(reason_as(address_, GroupKey::random(), 2), "");
  EXPECT_NE(reason_as(address_, key_, 0), "");
  EXPECT_NE(reason_as(address_, key_, 3), "");
}

TEST_F(TcpStrangers, FindNobodyListeningWhileTheJobRuns) {
  go_.set_value();
  connected_.get_future().wait();
  const auto stranger = detail::begin_connect(SocketAddress::parse(address_).value());
  const int code = errno;
  const bool is_under_way = stranger.is_open() && wait_for(stranger.get(), POLLOUT);
  EXPECT_EQ(is_under_way ? detail::connection_error(stranger) : code, ECONNREFUSED);
  join_all(threads_);
  threads_.clear();
}

TEST(TcpMeshConnector, KeepsAMemberThroughABurstOfStrangers) {
  auto listener = detail::listen_at(any_port_of_loopback());
  const auto address = detail::local_address(listener).name();
  const detail::MeshPlan plan{.rank = 0, .addresses = {address, "127.0.0.1:1"}, .key = GroupKey::random()};
  std::promise<void> greeted;
  std::thread answerer([&, listens = greeted.get_future()] {
    detail::MeshConnector{plan, std::move(listener)}.connect(wait_policy().deadline, [&] { listens.wait(); });
  });
  // There is no answer yet: with one, advance() could go on to the end of the handshake.
  auto data = call_as(address, plan.key, 1, Channel::data);
  EXPECT_EQ(data.advance(), Handshake::State::underway);
  greeted.set_value();
  EXPECT_TRUE(wait_for(data.descriptor(), POLLIN));
  std::vector<FileDescriptor> strangers;
  for (int count = 0; count < 40; ++count) strangers.push_back(knock(address));
  EXPECT_TRUE(is_dropped(strangers.front()));
  EXPECT_EQ(reason_of(data), "");
  auto control = call_as(address, plan.key, 1, Channel::control);
  EXPECT_EQ(reason_of(control), "");
  answerer.join();
}

TEST(TcpMeshConnector, SaysWhyAPeerCannotBeReached) {
  // connect() fails at once for a broadcast address.
  const detail::MeshPlan plan{.rank = 1, .addresses = {"255.255.255.255:9", "127.0.0.1:1"}, .key = GroupKey::random()};
  detail::MeshConnector connector{plan, detail::listen_at(any_port_of_loopback())};
  const auto message = failure_of([&] { connector.connect(wait_policy(milliseconds(200)).deadline, [] {}); });
  EXPECT_THAT(message, AllOf(HasSubstr("rank 0 at 255.255.255.255:9 ("), HasSubstr(std::strerror(ENETUNREACH))));
}

TEST(TcpMeshConnector, DropsASecondOneOfARank) {
  auto listener = detail::listen_at(any_port_of_loopback());
  const auto address = detail::local_address(listener).name();
  const detail::MeshPlan plan{.rank = 0, .addresses = {address, "127.0.0.1:1"}, .key = GroupKey::random()};
  std::vector<detail::MeshPeer> peers;
  std::thread answerer(
      [&] { peers = detail::MeshConnector{plan, std::move(listener)}.connect(wait_policy().deadline, [] {}); });
  auto first = call_as(address, plan.key, 1, Channel::data);
  EXPECT_EQ(reason_of(first), "");
  EXPECT_NE(reason_as(address, plan.key, 1), "");
  auto control = call_as(address, plan.key, 1, Channel::control);
  EXPECT_EQ(reason_of(control), "");
  answerer.join();
  const auto kept = first.take_socket();
  say(peers[1].data.socket, "!");
  EXPECT_TRUE(wait_for(kept.get(), POLLIN));
}

TEST(TcpHandshake, RefusesAnAnswererThatDoesNotKnowTheSecret) {
  const auto listener = detail::listen_at(any_port_of_loopback());
  const auto key = GroupKey::random();
  auto other = key;
  other.secret[0] ^= 1;
  auto caller = call_as(detail::local_address(listener).name(), key, 1);
  SocketAddress remote;
  ASSERT_TRUE(wait_for(listener.get(), POLLIN));
  auto answerer = Handshake::answer(detail::accept_from(listener, remote),
                                    [&](const detail::Hello&) { return Handshake::Outcome{.secret = other.secret}; });
  while (caller.advance() == Handshake::State::underway) {
    ASSERT_EQ(answerer.advance(), Handshake::State::underway);
  }
  EXPECT_THAT(caller.reason(), HasSubstr("secret"));
}

TEST(TcpSecret, IsHmacSha256) {
  // RFC 4231, test case 2, its key padded with zeros as HMAC itself would.
  detail::Digest key{'J', 'e', 'f', 'e'};
  const detail::Digest digest = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
                                 0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
                                 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
  EXPECT_EQ(detail::authenticate(key, "what do ya want for nothing?"), digest);
  EXPECT_TRUE(detail::equal_digests(digest, digest));
  key = digest;
  key[31] ^= 1;
  EXPECT_FALSE(detail::equal_digests(digest, key));
}

}  // namespace
}  // namespace libtrain::test
