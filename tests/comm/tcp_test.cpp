// Collectives over TCP, ranks as threads of this process over loopback.

#include <dirent.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/comm/threads/detail/thread_group.hpp>
#include <libtrain/comm/threads/detail/thread_transport.hpp>

#include <tests/comm/tcp_ranks.hpp>
#include <tests/comm/tcp_relay.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::size_t> kSizes = {0, 1, 2, 3, 17, 1021, 65'537, (std::size_t{1} << 20) + 7};

// Small whole numbers: sums of floats are exact in any order.
template <typename T>
T element(int rank, std::size_t index) {
  return static_cast<T>((index * 7 + static_cast<std::size_t>(rank) * 13) % 11);
}

template <typename T>
std::vector<T> input_of(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<T> values(count);
  for (std::size_t index = 0; index < count; ++index) values[index] = element<T>(rank, first + index);
  return values;
}

template <typename T>
T combined(int ranks, std::size_t index, ReduceOp op) {
  T result = element<T>(0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const T value = element<T>(rank, index);
    if (op == ReduceOp::minimum) result = std::min(result, value);
    if (op == ReduceOp::maximum) result = std::max(result, value);
    if (op == ReduceOp::product) result = static_cast<T>(result * value);
    if (op == ReduceOp::sum || op == ReduceOp::average) result = static_cast<T>(result + value);
  }
  return op == ReduceOp::average ? static_cast<T>(result / static_cast<T>(ranks)) : result;
}

template <typename T>
std::vector<T> expected(int ranks, std::size_t count, ReduceOp op, std::size_t first = 0) {
  std::vector<T> values(count);
  for (std::size_t index = 0; index < count; ++index) values[index] = combined<T>(ranks, first + index, op);
  return values;
}

void meet(HostTransport& transport) {
  EXPECT_TRUE(transport.arrive({.fingerprint = 42}, wait_policy()));
}

template <typename T>
void check_reductions(HostTransport& transport, std::size_t count, DataType type, ReduceOp op) {
  const int ranks = transport.world_size();
  const int rank = transport.rank();
  const auto input = input_of<T>(rank, count);
  const auto sum = expected<T>(ranks, count, op);

  meet(transport);
  auto in_place = input;
  transport.all_reduce(in_place.data(), in_place.data(), count, type, op, wait_policy());
  EXPECT_TRUE(in_place == sum);

  meet(transport);
  auto kept = input;
  std::vector<T> output(count);
  transport.all_reduce(kept.data(), output.data(), count, type, op, wait_policy());
  EXPECT_TRUE(output == sum);
  EXPECT_TRUE(kept == input);

  const int root = ranks - 1;
  meet(transport);
  std::vector<T> at_root(count);
  transport.reduce(kept.data(), rank == root ? at_root.data() : nullptr, count, type, op, root, wait_policy());
  EXPECT_TRUE(rank != root || at_root == sum);
  EXPECT_TRUE(kept == input);
}

template <typename T>
void check_reduce_scatter(HostTransport& transport, std::size_t count, DataType type, ReduceOp op) {
  const int ranks = transport.world_size();
  const auto first = static_cast<std::size_t>(transport.rank()) * count;
  const auto input = input_of<T>(transport.rank(), count * static_cast<std::size_t>(ranks));
  const auto part = expected<T>(ranks, count, op, first);

  meet(transport);
  auto kept = input;
  std::vector<T> output(count);
  transport.reduce_scatter(kept.data(), output.data(), count, type, op, wait_policy());
  EXPECT_TRUE(output == part);
  EXPECT_TRUE(kept == input);

  meet(transport);
  transport.reduce_scatter(kept.data(), kept.data() + first, count, type, op, wait_policy());
  auto changed = input;
  std::copy(part.begin(), part.end(), changed.begin() + static_cast<std::ptrdiff_t>(first));
  EXPECT_TRUE(kept == changed);
}

void check_moves(HostTransport& transport, std::size_t bytes) {
  using Byte = std::uint8_t;
  const int ranks = transport.world_size();
  const int rank = transport.rank();
  for (const int root : {0, ranks - 1}) {
    meet(transport);
    auto data = input_of<Byte>(rank, bytes);
    transport.broadcast(data.data(), bytes, root, wait_policy());
    EXPECT_TRUE(data == input_of<Byte>(root, bytes));
  }
  std::vector<Byte> everyone;
  std::vector<Byte> for_me;
  const auto mine = static_cast<std::size_t>(rank) * bytes;
  for (int peer = 0; peer < ranks; ++peer) {
    const auto given = input_of<Byte>(peer, bytes);
    everyone.insert(everyone.end(), given.begin(), given.end());
    const auto sent = input_of<Byte>(peer, bytes, mine);
    for_me.insert(for_me.end(), sent.begin(), sent.end());
  }
  const auto total = bytes * static_cast<std::size_t>(ranks);
  std::vector<Byte> output(total);
  meet(transport);
  const auto input = input_of<Byte>(rank, bytes);
  transport.all_gather(input.data(), output.data(), bytes, wait_policy());
  EXPECT_TRUE(output == everyone);
  std::vector<Byte> in_place(total);
  std::copy(input.begin(), input.end(), in_place.begin() + static_cast<std::ptrdiff_t>(mine));
  meet(transport);
  transport.all_gather(in_place.data() + mine, in_place.data(), bytes, wait_policy());
  EXPECT_TRUE(in_place == everyone);
  const auto parts = input_of<Byte>(rank, total);
  meet(transport);
  transport.all_to_all(parts.data(), output.data(), bytes, wait_policy());
  EXPECT_TRUE(output == for_me);
}

class TcpCollectives : public ::testing::TestWithParam<int> {};

TEST_P(TcpCollectives, ReduceEveryTypeAndOperation) {
  on_tcp_ranks(GetParam(), [](HostTransport& transport) {
    for (const auto count : {std::size_t{0}, std::size_t{17}, std::size_t{65'537}}) {
      for (const auto op : {ReduceOp::sum, ReduceOp::minimum, ReduceOp::maximum, ReduceOp::product}) {
        check_reductions<float>(transport, count, DataType::float32, op);
        check_reductions<double>(transport, count, DataType::float64, op);
        check_reductions<std::int32_t>(transport, count, DataType::int32, op);
        check_reductions<std::int64_t>(transport, count, DataType::int64, op);
        check_reductions<std::uint8_t>(transport, count, DataType::uint8, op);
      }
      check_reductions<float>(transport, count, DataType::float32, ReduceOp::average);
      check_reductions<double>(transport, count, DataType::float64, ReduceOp::average);
    }
  });
}

TEST_P(TcpCollectives, ReduceEverySize) {
  on_tcp_ranks(GetParam(), [](HostTransport& transport) {
    for (const auto count : kSizes) {
      SCOPED_TRACE(count);
      check_reductions<float>(transport, count, DataType::float32, ReduceOp::average);
      check_reductions<std::int64_t>(transport, count, DataType::int64, ReduceOp::sum);
    }
  });
}

TEST_P(TcpCollectives, ReduceScatterEverySize) {
  on_tcp_ranks(GetParam(), [](HostTransport& transport) {
    for (const auto count : kSizes) {
      SCOPED_TRACE(count);
      check_reduce_scatter<float>(transport, count, DataType::float32, ReduceOp::average);
      check_reduce_scatter<std::uint8_t>(transport, count, DataType::uint8, ReduceOp::maximum);
    }
  });
}

TEST_P(TcpCollectives, MoveEverySize) {
  on_tcp_ranks(GetParam(), [](HostTransport& transport) {
    for (const auto bytes : kSizes) {
      SCOPED_TRACE(bytes);
      check_moves(transport, bytes);
    }
  });
}

// Rounding, NaN and signed zeros show the order of the operands.
TEST_P(TcpCollectives, GiveAllRanksTheSameBitsInEveryRun) {
  const int ranks = GetParam();
  for (const std::size_t count : {std::size_t{101}, std::size_t{50'001}}) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(2 * ranks));
    for (int run = 0; run < 2; ++run) {
      on_tcp_ranks(ranks, [&](HostTransport& transport) {
        std::vector<float> data(count);
        for (std::size_t index = 0; index < count; ++index) {
          data[index] = std::sin(static_cast<float>(index * 31 + static_cast<std::size_t>(transport.rank())));
        }
        data[0] = transport.rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
        data[1] = transport.rank() % 2 == 0 ? 0.0f : -0.0f;
        auto minimum = data;
        meet(transport);
        transport.all_reduce(data.data(), data.data(), count, DataType::float32, ReduceOp::sum, wait_policy());
        meet(transport);
        transport.all_reduce(minimum.data(), minimum.data(), count, DataType::float32, ReduceOp::minimum,
                             wait_policy());
        data.insert(data.end(), minimum.begin(), minimum.end());
        results[static_cast<std::size_t>(run * ranks + transport.rank())] = std::move(data);
      });
    }
    for (const auto& result : results) {
      EXPECT_EQ(std::memcmp(result.data(), results[0].data(), results[0].size() * sizeof(float)), 0);
    }
  }
}

TEST_P(TcpCollectives, ArriveTellsEveryRankOfAMismatch) {
  const int ranks = GetParam();
  on_tcp_ranks(ranks, [&](HostTransport& transport) {
    for (int odd = 0; odd < ranks; ++odd) {
      const std::uint64_t fingerprint = transport.rank() == odd ? 1 : 2;
      EXPECT_EQ(transport.arrive({.fingerprint = fingerprint}, wait_policy()), ranks == 1);
      meet(transport);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, TcpCollectives, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(TcpSplit, RanksByKeyAndNumbersThemAnew) {
  on_tcp_ranks(5, [](HostTransport& transport) {
    const int rank = transport.rank();
    const auto part = transport.split(rank % 2, -rank, wait_policy());
    const std::vector<std::vector<int>> members = {{4, 2, 0}, {3, 1}};
    const auto& mine = members[static_cast<std::size_t>(rank % 2)];
    ASSERT_EQ(part->world_size(), static_cast<int>(mine.size()));
    EXPECT_EQ(mine[static_cast<std::size_t>(part->rank())], rank);
    std::vector<int> gathered(mine.size());
    meet(*part);
    part->all_gather(&rank, gathered.data(), sizeof(rank), wait_policy());
    EXPECT_EQ(gathered, mine);
    EXPECT_EQ(part->name_of(0), 0);
    const auto again = part->split(0, 0, wait_policy());
    meet(*again);
    meet(transport);
  });
}

TEST(TcpConnect, WorksOverAnyTransport) {
  const auto group = std::make_shared<detail::ThreadGroup>(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&group, rank] {
      detail::ThreadTransport base{group, rank};
      const auto transport = detail::TcpTransport::connect(base, {.interface = "lo"}, wait_policy());
      EXPECT_EQ(transport->name(), "tcp");
      check_reductions<float>(*transport, 1000, DataType::float32, ReduceOp::sum);
    });
  }
  join_all(threads);
}

TEST(TcpConnect, WorksOverIpv6) {
  LoopbackRendezvous loopback{2};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport =
          detail::TcpTransport::connect(*loopback.of(rank), rank, 2, {.master_address = "::1"}, wait_policy());
      check_reductions<float>(*transport, 1000, DataType::float32, ReduceOp::sum);
    });
  }
  join_all(threads);
}

TEST(TcpConnect, NamesAnUnknownInterface) {
  LoopbackRendezvous loopback{1};
  try {
    detail::TcpTransport::connect(*loopback.of(0), 0, 1, {.interface = "ether9"}, wait_policy());
    FAIL() << "nothing was thrown";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'ether9'"), HasSubstr("lo")));
  }
}

TEST(TcpConnect, RefusesAMasterThatIsEveryAddress) {
  for (const std::string master : {"0.0.0.0", "::", "::ffff:0.0.0.0"}) {
    LoopbackRendezvous loopback{1};
    try {
      detail::TcpTransport::connect(*loopback.of(0), 0, 1, {.master_address = master}, wait_policy());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const EnvironmentError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("'" + master + "'"), HasSubstr("Set MASTER_ADDR")));
    }
  }
}

TEST(TcpConnect, NamesTheRankThatDoesNotConnect) {
  LoopbackRendezvous loopback{2};
  // Takes part in the rendezvous, sends the address at which it listens, and exits.
  class Deserter : public detail::Rendezvous {
   public:
    explicit Deserter(std::unique_ptr<detail::Rendezvous> rendezvous) : rendezvous_(std::move(rendezvous)) {}
    std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) override {
      auto records = rendezvous_->all_gather(own, deadline);
      if (++rounds_ == 2) throw CommunicationError("gone");
      return records;
    }

   private:
    std::unique_ptr<detail::Rendezvous> rendezvous_;
    int rounds_ = 0;
  };
  std::thread rank_1{[&] {
    Deserter deserter{loopback.of(1)};
    EXPECT_EQ(failure_of([&] { detail::TcpTransport::connect(deserter, 1, 2, {}, wait_policy()); }), "gone");
  }};
  const auto message = failure_of(
      [&] { detail::TcpTransport::connect(*loopback.of(0), 0, 2, {}, wait_policy(std::chrono::milliseconds(500))); });
  EXPECT_THAT(message, HasSubstr("rank 1 at 127.0.0.1:"));
  rank_1.join();
}

TEST(TcpEncryption, ChangesNoResult) {
  for (const int world_size : {2, 3}) {
    on_tcp_ranks(world_size,
                 [](HostTransport& transport) {
                   EXPECT_EQ(transport.name(), "encrypted tcp");
                   for (const std::size_t count : {1, 1000, 16'383, 16'384, 16'385, 1'000'000}) {
                     check_reductions<float>(transport, count, DataType::float32, ReduceOp::sum);
                   }
                   const auto part = transport.split(0, transport.rank(), wait_policy());
                   EXPECT_EQ(part->name(), "encrypted tcp");
                   check_reductions<float>(*part, 1000, DataType::float32, ReduceOp::sum);
                 },
                 {.encrypt = true});
  }
}

TEST(TcpEncryption, IsThatOfAllRanksOrNone) {
  LoopbackRendezvous loopback{2};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_THAT(
          message_of<EnvironmentError>([&] {
            detail::TcpTransport::connect(*loopback.of(rank), rank, 2, {.encrypt = rank == 1}, wait_policy());
          }),
          AllOf(HasSubstr("LIBTRAIN_ENCRYPTION is on for rank 1 and off for rank 0"), HasSubstr("the same value")));
    });
  }
  join_all(threads);
}

/// Makes the other ranks connect to this one through a relay.
class Relayed : public detail::Rendezvous {
 public:
  Relayed(std::unique_ptr<detail::Rendezvous> rendezvous, Relay::Change change)
      : rendezvous_(std::move(rendezvous)), change_(std::move(change)) {}

  std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) override {
    auto record = own;
    if (++rounds_ == 2) {
      relay_ = std::make_unique<Relay>(detail::SocketAddress::parse(own.c_str()).value().port(), change_);
      record.assign(own.size(), '\0');
      record.replace(0, relay_->address().name().size(), relay_->address().name());
    }
    return rendezvous_->all_gather(record, deadline);
  }

 private:
  std::unique_ptr<detail::Rendezvous> rendezvous_;
  Relay::Change change_;
  std::unique_ptr<Relay> relay_;
  int rounds_ = 0;
};

// The result of rank 0 when one bit of the data from rank 1 is changed in transit.
std::string end_with_a_changed_bit(bool encrypt) {
  LoopbackRendezvous loopback{2};
  std::atomic<bool> changes = false;
  Relayed relayed{loopback.of(0), [&](std::string& bytes) {
                    if (bytes.size() > 1000 && changes.exchange(false)) bytes[500] ^= 1;
                  }};
  const detail::TcpOptions options{.encrypt = encrypt};
  const auto sum = [&](HostTransport& transport) {
    std::vector<std::int32_t> data(100'000, 1);
    transport.arrive({.fingerprint = 1}, wait_policy());
    transport.all_reduce(data.data(), data.data(), data.size(), DataType::int32, ReduceOp::sum, wait_policy());
    return data == std::vector<std::int32_t>(data.size(), 2);
  };
  std::thread rank_1{[&] {
    const auto transport = detail::TcpTransport::connect(*loopback.of(1), 1, 2, options, wait_policy());
    static_cast<void>(failure_of([&] { sum(*transport); }));
    static_cast<void>(failure_of([&] { sum(*transport); }));
  }};
  std::string end;
  {
    const auto transport = detail::TcpTransport::connect(relayed, 0, 2, options, wait_policy());
    EXPECT_TRUE(sum(*transport));
    changes = true;
    try {
      end = sum(*transport) ? "right sums" : "wrong sums";
    } catch (const CommunicationError& error) {
      end = error.what();
    }
  }
  rank_1.join();
  return end;
}

TEST(TcpEncryption, NoticesABitThatIsChangedOnTheWay) {
  EXPECT_EQ(end_with_a_changed_bit(false), "wrong sums");
  EXPECT_THAT(end_with_a_changed_bit(true), HasSubstr("was modified in transit"));
}

std::ptrdiff_t open_descriptors() {
  auto* directory = opendir("/proc/self/fd");
  std::ptrdiff_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

TEST(TcpConnect, LeaksNoDescriptors) {
  on_tcp_ranks(3, meet);
  const auto before = open_descriptors();
  for (int cycle = 0; cycle < 500; ++cycle) {
    on_tcp_ranks(3, [](HostTransport& transport) { meet(*transport.split(0, transport.rank(), wait_policy())); });
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(TcpConnect, TwoJobsAtOnceDoNotMeet) {
  std::vector<std::thread> jobs;
  for (int job = 0; job < 2; ++job) {
    jobs.emplace_back([job] {
      on_tcp_ranks(3, [job](HostTransport& transport) {
        for (int round = 0; round < 100; ++round) {
          std::vector<int> data(5000, job + 1);
          meet(transport);
          transport.all_reduce(data.data(), data.data(), data.size(), DataType::int32, ReduceOp::sum, wait_policy());
          ASSERT_EQ(data, std::vector<int>(5000, 3 * (job + 1)));
        }
      });
    });
  }
  join_all(jobs);
}

}  // namespace
}  // namespace libtrain::test
