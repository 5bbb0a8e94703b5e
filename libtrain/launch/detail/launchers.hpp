#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <libtrain/launch/detail/launcher_variables.hpp>

/// One reader per launcher. It returns nothing where its launcher's variables are not set, and throws EnvironmentError
/// (explicit options: UsageError) where they are set and unreadable. To add a launcher: write its reader in
/// launchers.cpp, and give it a row in launcher_readers() there.
namespace libtrain::detail {

/// What the numbers of a launcher stand for when another one decides.
enum class Counts {
  ranks,
  ranks_or_agents,  ///< it may have started one agent per node, which then started the ranks
  nodes,
};

struct LauncherReader {
  Launcher launcher;
  /// 1 first. Launchers of equal precedence must not disagree.
  int precedence;
  /// MPI_Init sees the ranks that the variables name.
  bool speaks_mpi;
  Counts counts;
  std::optional<LauncherVariables> (*read)(const Environment&, const LaunchOptions&);
};

/// All launchers in order of precedence.
std::span<const LauncherReader> launcher_readers();

/// The row of a launcher that is not `single`.
const LauncherReader& reader_of(Launcher launcher);

std::optional<LauncherVariables> read_slurm(const Environment& environment, const LaunchOptions& options);

/// The Slurm step this process belongs to, of one process or more; nothing outside a step, as in a batch script.
std::optional<LauncherVariables> read_slurm_step(const Environment& environment);

/// The host of each rank of a Slurm step; nothing where its tasks are not laid out in blocks, or the variables do not
/// say.
std::vector<std::string> slurm_hosts_of_ranks(const Environment& environment, int world_size);

}  // namespace libtrain::detail
