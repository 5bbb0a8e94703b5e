#include <libtrain/launch/launch.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/launch/detail/describe.hpp>
#include <libtrain/launch/detail/host.hpp>
#include <libtrain/launch/detail/variables.hpp>

#include <tests/support/fresh_seed.hpp>

namespace libtrain {
namespace {

const Environment kRankThreeOfEight{{{"OMPI_COMM_WORLD_RANK", "3"},
                                     {"OMPI_COMM_WORLD_SIZE", "8"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}};

TEST(Launch, HoldsTogetherWhateverTheEnvironment) {
  const std::vector<std::string> values{
      "0",         "1",   "2",      "4",     "8",         "-1",       "x", "", "10.0.0.4:6000",
      "localhost", "a,b", "n[1-2]", "2(x2)", "file:///f", "tcp://h:1"};
  const test::FreshSeed seed;
  std::mt19937_64 random{seed.value};
  int detected = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::map<std::string, std::string, std::less<>> variables;
    for (auto count = random() % 9; count > 0; --count) {
      const auto name = detail::launch_variables()[random() % detail::launch_variables().size()];
      variables[std::string{name}] = values[random() % values.size()];
    }
    // Without these, hardly any random environment is complete.
    if (random() % 2 == 0) variables.insert({{"RANK", "1"}, {"WORLD_SIZE", "4"}});
    Launch launch;
    try {
      launch = detect_launch(Environment{variables});
    } catch (const EnvironmentError&) {
      continue;
    }
    ++detected;
    ASSERT_GE(launch.rank.value, 0);
    ASSERT_LT(launch.rank.value, launch.world_size.value);
    ASSERT_LT(launch.local_rank.value.value_or(0), launch.local_world_size.value.value_or(launch.world_size.value));
    ASSERT_LT(launch.node_rank.value.value_or(0), launch.node_count.value.value_or(1 << 20));
    ASSERT_NE(launch.master_port.value, 6000);
    ASSERT_EQ(launch.rendezvous.value == "none", launch.world_size.value == 1);
    ASSERT_FALSE(launch.launcher == Launcher::single && launch.world_size.value != 1);
  }
  EXPECT_GT(detected, 1000);
}

TEST(Launch, KnowsTheHostOfEachRankOfASlurmStep) {
  const auto hosts_with = [](std::map<std::string, std::string, std::less<>> more) {
    more.insert({{"SLURM_STEP_ID", "0"},
                 {"SLURM_PROCID", "2"},
                 {"SLURM_STEP_NUM_TASKS", "4"},
                 {"SLURM_STEP_NODELIST", "n[1,3]"},
                 {"SLURM_STEP_TASKS_PER_NODE", "3,1"}});
    return detect_launch(Environment{std::move(more)}).hosts;
  };
  const std::vector<std::string> in_blocks{"n1", "n1", "n1", "n3"};
  const std::vector<std::string> unknown;
  EXPECT_EQ(hosts_with({}), in_blocks);
  EXPECT_EQ(hosts_with({{"SLURM_DISTRIBUTION", "block:cyclic"}}), in_blocks);
  EXPECT_EQ(hosts_with({{"SLURM_DISTRIBUTION", "cyclic"}}), unknown);
  EXPECT_EQ(hosts_with({{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}, {"SLURM_STEP_NODELIST", "n1"}}), unknown);
  EXPECT_EQ(hosts_with({{"SLURM_STEP_TASKS_PER_NODE", "2"}, {"SLURM_STEP_NODELIST", "n1"}}), unknown);
}

TEST(Describe, NamesEveryValueWithItsVariable) {
  const auto lines = detail::describe(detect_launch(kRankThreeOfEight));
  const auto has = [&](const std::string& line) { return std::find(lines.begin(), lines.end(), line) != lines.end(); };
  EXPECT_TRUE(has("launcher open_mpi"));
  EXPECT_TRUE(has("rank 3 of 8 (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)"));
  EXPECT_TRUE(has("local rank 3 of 4 (OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE)"));
  EXPECT_TRUE(has("node ? of ? (not known before the ranks connect)"));
  EXPECT_TRUE(has("rendezvous mpi (OMPI_COMM_WORLD_SIZE)"));
  EXPECT_TRUE(has("backend auto (default)"));
}

TEST(Launcher, HasDistinctNames) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(Launcher::single); ++i) names.insert(to_string(static_cast<Launcher>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Launcher::single) + 1);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(LaunchVariables, HoldNoSecretNames) {
  for (const auto name : detail::launch_variables()) EXPECT_FALSE(detail::looks_secret(name)) << name;
}

TEST(HostPort, UnderstandsNamesAndBothKindsOfAddresses) {
  const auto parsed = [](const std::string& text) -> std::string {
    const auto result = detail::parse_host_port(text);
    if (!result) return "refused";
    return result->host + (result->port ? " port " + std::to_string(*result->port) : "");
  };
  EXPECT_EQ(parsed("node-0"), "node-0");
  EXPECT_EQ(parsed("node_0.site.net:6000"), "node_0.site.net port 6000");
  EXPECT_EQ(parsed("10.0.0.4:6000"), "10.0.0.4 port 6000");
  EXPECT_EQ(parsed("::1"), "::1");
  EXPECT_EQ(parsed("[::1]"), "::1");
  EXPECT_EQ(parsed("[fe80::1%eth0]:6000"), "fe80::1%eth0 port 6000");
  EXPECT_EQ(parsed("::ffff:10.0.0.4"), "::ffff:10.0.0.4");
  for (const std::string bad :
       {"",    ":",      ":1",  "a:",  "a:b", "a:0", "a:65536", "a:1:2", "[::1",        "::1]", "[]",
        "[a]", "[::1]1", "a b", "a/b", "a@b", "-a",  ".a",      "a\tb",  "fe80::1%a b", "g::1"}) {
    EXPECT_EQ(parsed(bad), "refused") << bad;
  }
  EXPECT_EQ(parsed(std::string("a\0b", 3)), "refused");
  EXPECT_EQ(parsed(std::string(253, 'a')), std::string(253, 'a'));
  EXPECT_EQ(parsed(std::string(254, 'a')), "refused");
}

TEST(HostPort, KnowsLoopback) {
  for (const auto* host : {"localhost", "127.0.0.1", "127.0.1.1", "::1"})
    EXPECT_TRUE(detail::is_loopback(host)) << host;
  for (const auto* host : {"127.example.net.", "10.0.0.1", "localhost.site", "node-0"}) {
    EXPECT_EQ(detail::is_loopback(host), false) << host;
  }
}

TEST(HostList, TakesBothSeparatorsAndDropsPorts) {
  EXPECT_EQ(detail::parse_host_list("a:1,b;[::1]:2", "L"), (std::vector<std::string>{"a", "b", "::1"}));
  EXPECT_EQ(detail::parse_host_list("a;", "L"), std::vector<std::string>{"a"});
  EXPECT_THROW(detail::parse_host_list(";", "L"), EnvironmentError);
}

}  // namespace
}  // namespace libtrain
