#include <libtrain/base/detail/machine.hpp>

#include <sched.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace libtrain {
namespace {

using detail::parse_cpu_max;
using detail::parse_memory_max;

TEST(Machine, KnowsItsName) {
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_EQ(detail::host_name(), name);
}

TEST(Machine, KnowsItsNamespaces) {
  EXPECT_TRUE(detail::own_namespace("pid").starts_with("pid:["));
  EXPECT_EQ(detail::own_namespace("pid").back(), ']');
  EXPECT_EQ(detail::own_namespace("none"), "");
  EXPECT_NE(detail::machine_id(), "");
}

TEST(Machine, CountsOnlyTheCoresThatMayBeUsed) {
  const auto all = detail::usable_cores();
  ASSERT_FALSE(all.empty());
  // The affinity of a thread is its own: the other tests keep theirs.
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(*all.rbegin()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(detail::usable_cores(), (std::set<int>{*all.rbegin()}));
  }).join();
}

TEST(Machine, ReadsTheQuotaOfAContainer) {
  EXPECT_EQ(parse_cpu_max("200000 100000\n"), 2.0);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 0.5);
  EXPECT_EQ(parse_cpu_max("max 100000\n"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("-1\n 100000\n"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("200000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("200000 0"), std::nullopt);
  EXPECT_EQ(parse_cpu_max(" "), std::nullopt);
}

TEST(Machine, ReadsHowOftenAContainerWasStopped) {
  const auto found = detail::parse_cpu_stat("usage_usec 7\nnr_periods 120\nnr_throttled 30\nthrottled_usec 9\n");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->periods, 120);
  EXPECT_EQ(found->throttled, 30);
  EXPECT_FALSE(detail::parse_cpu_stat("usage_usec 7\nuser_usec 5\n"));
  EXPECT_FALSE(detail::parse_cpu_stat("nr_periods 0\nnr_throttled 0\n"));
  EXPECT_FALSE(detail::parse_cpu_stat(""));
}

TEST(Machine, ReadsTheMemoryOfAContainer) {
  EXPECT_EQ(parse_memory_max("8589934592\n"), std::int64_t{8} << 30);
  EXPECT_EQ(parse_memory_max("9223372036854771712\n"), 9223372036854771712);
  EXPECT_EQ(parse_memory_max("max\n"), std::nullopt);
  EXPECT_EQ(parse_memory_max("-1"), std::nullopt);
  EXPECT_EQ(parse_memory_max(""), std::nullopt);
  EXPECT_GT(detail::memory_bytes(), detail::peak_rss_bytes());
  EXPECT_LE(detail::memory_bytes(), std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
}

TEST(Machine, RemembersTheMostMemoryItHad) {
  const auto before = detail::peak_rss_bytes();
  EXPECT_GT(before, 0);
  const std::size_t more = static_cast<std::size_t>(before) + (64 << 20);
  {
    const std::vector<char> memory(more, 'x');
    EXPECT_EQ(memory.back(), 'x');
  }
  EXPECT_GE(detail::peak_rss_bytes(), static_cast<std::int64_t>(more));
}

}  // namespace
}  // namespace libtrain
