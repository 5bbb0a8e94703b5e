#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <libtrain/base/text.hpp>
#include <libtrain/launch/launch.hpp>

/// What the tables of launch environments share: a row, environments to build on, and the check.
namespace libtrain::launch_table {

using Variables = std::map<std::string, std::string, std::less<>>;

struct Row {
  std::string name;
  Variables variables;
  LaunchOptions options = {};
  /// Field name to "value from source", for the fields that matter to the row.
  std::map<std::string, std::string> expected;
  /// One substring for each warning, in order: a row without any must be free of warnings.
  std::vector<std::string> warnings = {};
};

template <typename T>
std::string show(const Sourced<std::optional<T>>& value) {
  return value.value ? text(*value.value, " from ", value.source) : "unknown";
}

template <typename T>
std::string show(const Sourced<T>& value) {
  return text(value.value, " from ", value.source);
}

inline std::map<std::string, std::string> show(const Launch& launch) {
  return {{"rank", show(launch.rank)},
          {"world_size", show(launch.world_size)},
          {"local_rank", show(launch.local_rank)},
          {"local_world_size", show(launch.local_world_size)},
          {"node_rank", show(launch.node_rank)},
          {"node_count", show(launch.node_count)},
          {"master_address", show(launch.master_address)},
          {"master_port", show(launch.master_port)},
          {"job", show(launch.job)},
          {"rendezvous", show(launch.rendezvous)},
          {"backend", show(launch.backend)},
          {"launcher", std::string{to_string(launch.launcher)}}};
}

inline Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

inline Variables open_mpi(int rank, int size, int local_rank, int local_size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
          {"OMPI_COMM_WORLD_NODE_RANK", std::to_string(local_rank)},
          {"PMIX_RANK", std::to_string(rank)}};
}

/// Task 11 of 34 on nodes of 8, 8, 8, 8 and 2 tasks, as srun sets it.
inline const Variables kSrun{{"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", "11"},
                             {"SLURM_NTASKS", "34"},
                             {"SLURM_STEP_NUM_TASKS", "34"},
                             {"SLURM_LOCALID", "3"},
                             {"SLURM_NODEID", "1"},
                             {"SLURM_JOB_NUM_NODES", "5"},
                             {"SLURM_STEP_NUM_NODES", "5"},
                             {"SLURM_JOB_NODELIST", "n[001-004,7]"},
                             {"SLURM_TASKS_PER_NODE", "8(x4),2"},
                             {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"}};

inline void check(const std::vector<Row>& rows) {
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Launch launch;
    ASSERT_NO_THROW(launch = detect_launch(Environment{row.variables}, row.options));
    const auto shown = show(launch);
    for (const auto& [field, value] : row.expected) {
      ASSERT_TRUE(shown.contains(field)) << field;
      EXPECT_EQ(shown.at(field), value) << field;
    }
    EXPECT_EQ(launch.warnings.size(), row.warnings.size()) << join(launch.warnings, "\n");
    for (std::size_t i = 0; i < std::min(launch.warnings.size(), row.warnings.size()); ++i) {
      EXPECT_NE(launch.warnings[i].find(row.warnings[i]), std::string::npos) << launch.warnings[i];
    }
  }
}

}  // namespace libtrain::launch_table
