#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <libtrain/launch/detail/launcher_variables.hpp>

/// One reader per launcher. It returns std::nullopt if its launcher's variables are not set, and throws
/// EnvironmentError (explicit options: UsageError) if they are set to invalid values. To add a launcher: write its
/// reader in launchers.cpp, and add a row to launcher_readers() there.
namespace libtrain::detail {

/// What the numbers of a launcher count if another launcher takes precedence.
enum class Counts {
  ranks,
  ranks_or_agents,  ///< it may have started one agent per node, which then started the ranks
  nodes,
};

struct LauncherReader {
  Launcher launcher;
  /// 1 is highest. Launchers of equal precedence must have the same numbers.
  int precedence;
  /// Whether MPI_Init connects the ranks that the variables name.
  bool speaks_mpi;
  Counts counts;
  std::optional<LauncherVariables> (*read)(const Environment&, const LaunchOptions&);
};

/// All launchers in order of precedence.
std::span<const LauncherReader> launcher_readers();

/// The row of a launcher that is not `single`.
const LauncherReader& reader_of(Launcher launcher);

std::optional<LauncherVariables> read_slurm(const Environment& environment, const LaunchOptions& options);

/// The Slurm step of this process, also if it has one process only; std::nullopt outside a step, as in a batch script.
std::optional<LauncherVariables> read_slurm_step(const Environment& environment);

/// The host of each rank of a Slurm step; empty if its tasks are not distributed in blocks, or the variables are not
/// set.
std::vector<std::string> slurm_hosts_of_ranks(const Environment& environment, int world_size);

}  // namespace libtrain::detail
