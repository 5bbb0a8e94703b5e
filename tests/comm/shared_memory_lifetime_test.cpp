// How shared memory is allocated, mapped and freed.

#include <libtrain/comm/detail/shared_memory/shared_memory_transport.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/shared_memory/peer_segments.hpp>

#include <tests/comm/shared_memory_ranks.hpp>
#include <tests/numeric/reference_reduction.hpp>

namespace libtrain {
namespace {

using test::fork_ranks;
using test::on_processes;
using test::on_threads;
using test::SharedTable;
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

TEST(SharedMemoryLifetime, ReturnsNullIfTheMachineHasNoMoreMemory) {
  on_threads(1, [](HostTransport& transport) {
    EXPECT_EQ(transport.allocate(std::size_t{1} << 50), nullptr);
    EXPECT_EQ(transport.allocate(~std::size_t{0}), nullptr);
    EXPECT_NE(transport.allocate(1), nullptr);
  });
}

// Of the mapping at `address`, in which pages of 2 MiB are mapped as one.
std::int64_t huge_kilobytes(const void* address) {
  std::ifstream maps{"/proc/self/smaps"};
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  bool is_in_it = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t first = 0;
    std::uintptr_t past = 0;
    std::int64_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &first, &past) == 2) {
      is_in_it = first <= begin && begin < past;
    } else if (is_in_it && std::sscanf(line.c_str(), "ShmemPmdMapped: %" SCNd64 " kB", &kilobytes) == 1) {
      return kilobytes;
    }
  }
  return 0;
}

// Whether it makes huge pages of a page of shared memory on request, as Linux 6.1 and later do unless it is forbidden.
bool kernel_makes_huge_pages() {
  constexpr int kCollapse = 25;
  constexpr std::size_t kBytes = 4 << 20;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  const auto aligned = (reinterpret_cast<std::uintptr_t>(memory) + kBytes / 2 - 1) / (kBytes / 2) * (kBytes / 2);
  std::memset(reinterpret_cast<void*>(aligned), 0, 1);
  const bool does = madvise(reinterpret_cast<void*>(aligned), kBytes / 2, kCollapse) == 0;
  munmap(memory, kBytes);
  return does;
}

// Other processes take the kernel's free huge pages meanwhile.
TEST(SharedMemoryLifetime, IsInHugePagesIfTheKernelCanMakeThem) {
  on_threads(1, [](HostTransport& transport) {
    const bool was_possible = kernel_makes_huge_pages();
    const auto memory = transport.allocate(8 << 20);
    const bool is_possible = kernel_makes_huge_pages();
    EXPECT_TRUE(huge_kilobytes(memory.get()) > 0 || !was_possible || !is_possible);
    EXPECT_EQ(huge_kilobytes(transport.allocate(4096).get()), 0);
  });
}

// Bytes of shared memory that this process has touched and that still exist.
std::size_t resident_shared_bytes() {
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssShmem:")) return std::stoul(line.substr(9)) << 10;
  }
  return 0;
}

TEST(SharedMemoryLifetime, FreedMemoryGoesBackAtOnceAlthoughPeersHaveItMapped) {
  SharedTable table{2};
  const auto results = wait_for(fork_ranks(2, [&](int rank) {
    const auto base = table.rank(rank);
    const auto transport = detail::SharedMemoryTransport::connect(*base, wait_policy());
    constexpr std::size_t kBytes = 64 << 20;
    const auto before = resident_shared_bytes();
    auto memory = transport->allocate(kBytes);
    sum_up(*transport, static_cast<float*>(memory.get()), kBytes / sizeof(float));
    EXPECT_GT(resident_shared_bytes(), before + kBytes);
    table.wait();
    memory.reset();
    table.wait();
    EXPECT_LT(resident_shared_bytes(), before + kBytes / 8);
  }));
  EXPECT_THAT(results, ElementsAre(0, 0));
}

TEST(SharedMemoryLifetime, MemoryFreedTooEarlyDoesNotEndThePeer) {
  SharedTable table{2};
  const auto results = wait_for(fork_ranks(2, [&](int rank) {
    const auto base = table.rank(rank);
    const auto transport = detail::SharedMemoryTransport::connect(*base, wait_policy());
    auto memory = transport->allocate(1 << 20);
    auto* data = static_cast<float*>(memory.get());
    sum_up(*transport, data, 1 << 18);
    transport->arrive({.fingerprint = 1, .input = data, .output = data}, wait_policy());
    if (rank == 0) memory.reset();
    table.wait();
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

// As with a gradient bucket for each of many parameters.
constexpr std::size_t kManySegments = 300;

TEST(PeerSegments, ARoundOverManyMapsEachOnce) {
  std::vector<detail::Segment> segments;
  for (std::uint32_t number = 1; number <= kManySegments; ++number) segments.emplace_back(4096, number);
  const detail::PeerProcesses processes{{getpid()}};
  detail::PeerSegments mapped{processes, 1};
  for (std::size_t round = 1; round <= 5; ++round) {
    for (const auto& segment : segments) {
      const auto* data = mapped.address(0, {.segment = segment.name(), .offset = 8, .owned_segments = kManySegments});
      EXPECT_EQ(data[0], std::byte{0});
      if (&segment != &segments[kManySegments / 2]) continue;
      // Of a buffer that is freed again in each round.
      const detail::Segment short_lived{4096, static_cast<std::uint32_t>(kManySegments + round)};
      mapped.address(0, {.segment = short_lived.name(), .owned_segments = kManySegments + 1});
    }
    EXPECT_EQ(mapped.times_mapped(), kManySegments + round);
  }
}

TEST(PeerSegments, ThoseThatAPeerHasFreedAreUnmapped) {
  const auto before = mappings_of_ours();
  const detail::PeerProcesses processes{{getpid()}};
  detail::PeerSegments mapped{processes, 1};
  for (std::uint32_t number = 1; number <= 2000; ++number) {
    const detail::Segment segment{4096, number};
    mapped.address(0, {.segment = segment.name(), .owned_segments = 1});
  }
  EXPECT_EQ(mapped.times_mapped(), 2000u);
  EXPECT_LE(mappings_of_ours(), before + 256);
}

// The sanitizer of undefined behaviour, which comes with that of addresses, opens a pipe to look at an object.
#if !defined(__SANITIZE_ADDRESS__)

TEST(SharedMemoryLifetime, RoundsOverManyBuffersOpenNoneAgain) {
  const auto results = on_processes(2, [](HostTransport& transport) {
    std::vector<std::shared_ptr<void>> buffers;
    for (std::size_t index = 0; index < kManySegments; ++index) {
      buffers.push_back(transport.allocate(4096));
      ASSERT_NE(buffers.back(), nullptr);
    }
    for (int round = 0; round < 4; ++round) {
      for (const auto& buffer : buffers) sum_up(transport, static_cast<float*>(buffer.get()), 1024);
      const rlimit none_more{3, 3};
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none_more), 0);
    }
  });
  EXPECT_THAT(results, ElementsAre(0, 0));
}

#endif

TEST(SharedMemoryLifetime, TwoThousandGroupsLeaveNothingBehind) {
  SharedTable table{2};
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
