// How shared memory is given, kept and given back.

#include <libtrain/comm/detail/shared_memory/shared_memory_transport.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/comm/shared_memory_ranks.hpp>
#include <tests/numeric/reference_reduction.hpp>

namespace libtrain {
namespace {

using test::fork_ranks;
using test::MeetingTable;
using test::on_threads;
using test::sum_up;
using test::wait_for;
using test::wait_policy;
using ::testing::ElementsAre;

TEST(SharedMemoryLifetime, FreesInAnyOrderWhileOthersReduce) {
  on_threads(3, [](HostTransport& transport) {
    std::vector<std::shared_ptr<void>> buffers;
    for (std::size_t step = 0; step < 300; ++step) {
      // Another order on every rank, so that segments are numbered differently.
      const auto random = test::mix(step * 3 + static_cast<std::uint64_t>(transport.rank()));
      for (std::uint64_t i = 0; i < 1 + random % 3; ++i) buffers.push_back(transport.allocate(4096));
      while (buffers.size() > 4) buffers.erase(buffers.begin() + static_cast<std::ptrdiff_t>(random % buffers.size()));
      auto* data = static_cast<std::int32_t*>(buffers[random % buffers.size()].get());
      std::fill_n(data, 1024, static_cast<std::int32_t>(step));
      transport.arrive({.fingerprint = 1, .input = data, .output = data}, wait_policy());
      transport.all_reduce(data, data, 1024, DataType::int32, ReduceOp::sum, wait_policy());
      EXPECT_EQ(std::vector<std::int32_t>(data, data + 1024),
                std::vector<std::int32_t>(1024, static_cast<std::int32_t>(3 * step)));
    }
  });
}

TEST(SharedMemoryLifetime, OutlivesItsTransport) {
  std::shared_ptr<void> kept;
  on_threads(1, [&](HostTransport& transport) { kept = transport.allocate(3 << 20); });
  std::memset(kept.get(), 1, 3 << 20);
}

TEST(SharedMemoryLifetime, GivesNothingWhereTheMachineHasNoMore) {
  on_threads(1, [](HostTransport& transport) {
    EXPECT_EQ(transport.allocate(std::size_t{1} << 50), nullptr);
    EXPECT_EQ(transport.allocate(~std::size_t{0}), nullptr);
    EXPECT_NE(transport.allocate(1), nullptr);
  });
}

// Bytes of shared memory that this process has touched and that exist still.
std::size_t resident_shared_bytes() {
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssShmem:")) return std::stoul(line.substr(9)) << 10;
  }
  return 0;
}

TEST(SharedMemoryLifetime, FreedMemoryGoesBackAtOnceAlthoughPeersHaveItMapped) {
  MeetingTable table{2};
  const auto results = wait_for(fork_ranks(2, [&](int rank) {
    const auto base = table.rank(rank);
    const auto transport = detail::SharedMemoryTransport::connect(*base, wait_policy());
    constexpr std::size_t kBytes = 64 << 20;
    const auto before = resident_shared_bytes();
    auto memory = transport->allocate(kBytes);
    sum_up(*transport, static_cast<float*>(memory.get()), kBytes / sizeof(float));
    EXPECT_GT(resident_shared_bytes(), before + kBytes);
    table.meet();
    memory.reset();
    table.meet();
    EXPECT_LT(resident_shared_bytes(), before + kBytes / 8);
  }));
  EXPECT_THAT(results, ElementsAre(0, 0));
}

TEST(SharedMemoryLifetime, MemoryFreedTooEarlyDoesNotEndThePeer) {
  MeetingTable table{2};
  const auto results = wait_for(fork_ranks(2, [&](int rank) {
    const auto base = table.rank(rank);
    const auto transport = detail::SharedMemoryTransport::connect(*base, wait_policy());
    auto memory = transport->allocate(1 << 20);
    auto* data = static_cast<float*>(memory.get());
    sum_up(*transport, data, 1 << 18);
    transport->arrive({.fingerprint = 1, .input = data, .output = data}, wait_policy());
    if (rank == 0) memory.reset();
    table.meet();
    if (rank == 0) return;
    EXPECT_THROW(transport->all_reduce(data, data, 1 << 18, DataType::float32, ReduceOp::sum, wait_policy()),
                 CommunicationError);
  }));
  EXPECT_THAT(results, ElementsAre(0, 0));
}

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator{"/proc/self/fd"}) ++count;
  return count;
}

std::size_t mappings_of_ours() {
  std::size_t count = 0;
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) count += line.find("libtrain (deleted)") != std::string::npos;
  return count;
}

TEST(SharedMemoryLifetime, TwoThousandGroupsLeaveNothingBehind) {
  MeetingTable table{2};
  const auto results = wait_for(fork_ranks(2, [&](int rank) {
    const auto base = table.rank(rank);
    const auto files = open_files();
    for (int cycle = 0; cycle < 2000; ++cycle) {
      const auto transport = detail::SharedMemoryTransport::connect(*base, wait_policy());
      const auto memory = transport->allocate(8192);
      sum_up(*transport, static_cast<float*>(memory.get()), 2048);
    }
    EXPECT_EQ(open_files(), files);
    EXPECT_EQ(mappings_of_ours(), 0u);
  }));
  EXPECT_THAT(results, ElementsAre(0, 0));
}

}  // namespace
}  // namespace libtrain
