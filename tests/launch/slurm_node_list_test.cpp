#include <libtrain/launch/detail/slurm_lists.hpp>

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>

#include <tests/support/fresh_seed.hpp>

namespace libtrain {
namespace {

using Names = std::vector<std::string>;

TEST(SlurmNodeList, ExpandsAsScontrolShowHostnamesDoes) {
  const std::vector<std::pair<std::string, Names>> cases{
      {"n1", {"n1"}},
      {"n[001-004,7]", {"n001", "n002", "n003", "n004", "n7"}},
      {"a1,b[2-3]", {"a1", "b2", "b3"}},
      {"n[8-11]", {"n8", "n9", "n10", "n11"}},
      {"n[08-11]-ib.site", {"n08-ib.site", "n09-ib.site", "n10-ib.site", "n11-ib.site"}},
      {"rack[0-1]n[1-2]", {"rack0n1", "rack0n2", "rack1n1", "rack1n2"}},
      {"b,a,b", {"b", "a", "b"}},
      {"10.0.0.4", {"10.0.0.4"}},
  };
  for (const auto& [list, expected] : cases) EXPECT_EQ(detail::parse_slurm_node_list(list), expected) << list;
}

TEST(SlurmNodeList, RefusesWhatIsMalformed) {
  for (const std::string list : {"",       ",",
                                 "n1,",    ",n1",
                                 "n[",     "n[1",
                                 "n[]",    "n[1-]",
                                 "n[-1]",  "n[2-1]",
                                 "n[1,]",  "n]",
                                 "n1]",    "n[1-2-3]",
                                 "n[[1]]", "n[a]",
                                 "n[0x1]", "n 1",
                                 "n\n1",   "n[1]\x01",
                                 "-n1",    "n[1234567890123]"}) {
    EXPECT_THROW(detail::parse_slurm_node_list(list), EnvironmentError) << list;
  }
}

TEST(SlurmNodeList, RefusesMoreHostsThanAnyClusterHas) {
  EXPECT_EQ(detail::parse_slurm_node_list("n[1-65536]").size(), 65'536U);
  EXPECT_THROW(detail::parse_slurm_node_list("n[0-65536]"), EnvironmentError);
  EXPECT_THROW(detail::parse_slurm_node_list("n[0-999999999999]"), EnvironmentError);
  EXPECT_THROW(detail::parse_slurm_node_list("n[0-999]x[0-999]"), EnvironmentError);
  EXPECT_THROW(detail::parse_slurm_node_list("a[1-40000],b[1-40000]"), EnvironmentError);
  EXPECT_THROW(detail::parse_slurm_node_list(std::string(2 << 20, 'n')), EnvironmentError);
  EXPECT_THROW(detail::parse_slurm_node_list(std::string(300, 'n') + "[0-60000]"), EnvironmentError);
}

TEST(SlurmNodeList, NeverCrashesOnArbitraryText) {
  const test::FreshSeed seed;
  std::mt19937_64 random{seed.value};
  constexpr std::string_view alphabet = "n0019[]-,. x";
  for (int i = 0; i < 20'000; ++i) {
    std::string list;
    for (auto length = random() % 16; list.size() < length;) list += alphabet[random() % alphabet.size()];
    try {
      EXPECT_FALSE(detail::parse_slurm_node_list(list).empty()) << list;
    } catch (const EnvironmentError&) {
    }
  }
}

TEST(SlurmTasksPerNode, ExpandsRepetitions) {
  EXPECT_EQ(detail::parse_slurm_tasks_per_node("8"), std::vector<int>{8});
  EXPECT_EQ(detail::parse_slurm_tasks_per_node("8(x4),2"), (std::vector<int>{8, 8, 8, 8, 2}));
  EXPECT_EQ(detail::parse_slurm_tasks_per_node("1,2(x1),0(x2)"), (std::vector<int>{1, 2, 0, 0}));
}

TEST(SlurmTasksPerNode, RefusesWhatIsMalformed) {
  for (const std::string list : {"", ",", "8,", "8(x)", "8(x4", "8(4)", "8x4", "(x4)", "-1", "8(x0)", "8(x-1)", "8 ",
                                 "8(x65537)", "1(x65536),1", "8(x4)2", "99999999999"}) {
    EXPECT_THROW(detail::parse_slurm_tasks_per_node(list), EnvironmentError) << list;
  }
}

}  // namespace
}  // namespace libtrain
