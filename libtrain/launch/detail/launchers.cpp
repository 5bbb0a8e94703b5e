#include <libtrain/launch/detail/launchers.hpp>

#include <algorithm>
#include <array>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

std::optional<Sourced<int>> checked(const std::optional<int>& value, const char* name, int minimum, int maximum) {
  if (!value) return std::nullopt;
  if (*value < minimum || *value > maximum) {
    throw UsageError(
        text(name, " ", *value, " is not a whole number from ", minimum, " to ", maximum, ". Correct the option."));
  }
  return Sourced<int>{*value, name};
}

std::optional<LauncherVariables> read_explicit_options(const Environment& /*environment*/,
                                                       const LaunchOptions& options) {
  LauncherVariables found{.launcher = Launcher::explicit_options};
  found.rank_name = "--rank";
  found.world_size_name = "--world-size";
  found.rank = checked(options.rank, "--rank", 0, kMaxWorldSize - 1);
  found.world_size = checked(options.world_size, "--world-size", 1, kMaxWorldSize);
  found.local_rank = checked(options.local_rank, "--local-rank", 0, kMaxWorldSize - 1);
  if (!found.rank && !found.world_size) return std::nullopt;
  return found;
}

// torchrun may itself be started by one mpirun or srun process per node: its own variables have the ranks.
std::optional<LauncherVariables> read_torchrun(const Environment& environment, const LaunchOptions& /*options*/) {
  if (!environment.has("TORCHELASTIC_RUN_ID")) return std::nullopt;
  const VariableNames names{.launcher = Launcher::torchrun,
                            .rank = "RANK",
                            .world_size = "WORLD_SIZE",
                            .local_rank = "LOCAL_RANK",
                            .local_world_size = "LOCAL_WORLD_SIZE",
                            .node_rank = "GROUP_RANK",
                            .node_count = "GROUP_WORLD_SIZE"};
  // The run id alone is not enough: an error is better than to run as a single process.
  return read_variables(environment, names)
      .value_or(LauncherVariables{.launcher = names.launcher,
                                  .rank_name = std::string{names.rank},
                                  .world_size_name = std::string{names.world_size}});
}

// OMPI_COMM_WORLD_NODE_RANK is the rank on this node over all jobs, not the index of the node.
std::optional<LauncherVariables> read_open_mpi(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_variables(environment, {.launcher = Launcher::open_mpi,
                                      .rank = "OMPI_COMM_WORLD_RANK",
                                      .world_size = "OMPI_COMM_WORLD_SIZE",
                                      .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                                      .local_world_size = "OMPI_COMM_WORLD_LOCAL_SIZE"});
}

std::optional<LauncherVariables> read_plain(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_variables(environment, {.launcher = Launcher::plain,
                                      .rank = "RANK",
                                      .world_size = "WORLD_SIZE",
                                      .local_rank = "LOCAL_RANK",
                                      .local_world_size = "LOCAL_WORLD_SIZE",
                                      .node_rank = "NODE_RANK"});
}

// PMIx puts only the rank into the environment; the world size is the Slurm step's, or PMI's.
std::optional<LauncherVariables> read_pmix(const Environment& environment, const LaunchOptions& /*options*/) {
  const auto rank = read_rank(environment, "PMIX_RANK");
  if (!rank) return std::nullopt;
  auto found = read_slurm_step(environment).value_or(LauncherVariables{});
  // A step with another rank did not start this process, as under mpirun in a batch job.
  if (found.rank && found.rank->value != rank->value) found = {};
  if (!found.world_size) found.world_size = read_count(environment, "PMI_SIZE");
  // A step of one task may be the shell in which another launcher was called.
  if (found.world_size && !found.is_multi_process()) return std::nullopt;
  found.launcher = Launcher::pmix;
  found.rank = rank;
  found.rank_name = "PMIX_RANK";
  found.world_size_name = "SLURM_STEP_NUM_TASKS or PMI_SIZE";
  return found;
}

// MPICH and Intel MPI; Cray has other variables for the local rank.
std::optional<LauncherVariables> read_pmi(const Environment& environment, const LaunchOptions& /*options*/) {
  auto found = read_variables(environment, {.launcher = Launcher::pmi,
                                            .rank = "PMI_RANK",
                                            .world_size = "PMI_SIZE",
                                            .local_rank = "MPI_LOCALRANKID",
                                            .local_world_size = "MPI_LOCALNRANKS"});
  // If PALS sets the rank, PMI_SIZE is its world size, and no variable is missing.
  if (!found || (!found->rank && environment.has("PALS_RANKID"))) return std::nullopt;
  found->local_rank = first_of(found->local_rank, read_rank(environment, "PMI_LOCAL_RANK"));
  found->local_world_size = first_of(found->local_world_size, read_count(environment, "PMI_LOCAL_SIZE"));
  return found;
}

// PALS has no separate variable for the world size.
std::optional<LauncherVariables> read_pals(const Environment& environment, const LaunchOptions& /*options*/) {
  if (!environment.has("PALS_RANKID")) return std::nullopt;
  return read_variables(environment, {.launcher = Launcher::pals,
                                      .rank = "PALS_RANKID",
                                      .world_size = "PMI_SIZE",
                                      .local_rank = "PALS_LOCAL_RANKID",
                                      .local_world_size = "PALS_LOCAL_SIZE",
                                      .node_rank = "PALS_NODEID"});
}

std::optional<LauncherVariables> read_flux(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_variables(environment, {.launcher = Launcher::flux,
                                      .rank = "FLUX_TASK_RANK",
                                      .world_size = "FLUX_JOB_SIZE",
                                      .local_rank = "FLUX_TASK_LOCAL_ID",
                                      .node_count = "FLUX_JOB_NNODES"});
}

std::optional<LauncherVariables> read_mvapich2(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_variables(environment, {.launcher = Launcher::mvapich2,
                                      .rank = "MV2_COMM_WORLD_RANK",
                                      .world_size = "MV2_COMM_WORLD_SIZE",
                                      .local_rank = "MV2_COMM_WORLD_LOCAL_RANK",
                                      .local_world_size = "MV2_COMM_WORLD_LOCAL_SIZE"});
}

// HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT belong to the server of horovodrun, which may run on another host than rank 0.
std::optional<LauncherVariables> read_horovod(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_variables(environment, {.launcher = Launcher::horovod,
                                      .rank = "HOROVOD_RANK",
                                      .world_size = "HOROVOD_SIZE",
                                      .local_rank = "HOROVOD_LOCAL_RANK",
                                      .local_world_size = "HOROVOD_LOCAL_SIZE",
                                      .node_rank = "HOROVOD_CROSS_RANK",
                                      .node_count = "HOROVOD_CROSS_SIZE"});
}

// One process per node; the world size is on the job's command line. In other jobs the index counts nodes.
std::optional<LauncherVariables> read_azure_batchai(const Environment& environment, const LaunchOptions& options) {
  const auto index = read_rank(environment, "AZ_BATCHAI_TASK_INDEX");
  if (!index) return std::nullopt;
  LauncherVariables found{.launcher = Launcher::azure_batchai};
  found.rank_name = "AZ_BATCHAI_TASK_INDEX";
  found.world_size_name = "--world-size";
  found.rank = index;
  if (!options.world_size) return found;
  found.world_size = Sourced<int>{*options.world_size, "--world-size"};
  found.local_rank = Sourced<int>{0, "AZ_BATCHAI_TASK_INDEX (one process per node)"};
  found.local_world_size = Sourced<int>{1, "AZ_BATCHAI_TASK_INDEX (one process per node)"};
  found.node_rank = index;
  found.node_count = found.world_size;
  return found;
}

}  // namespace

std::span<const LauncherReader> launcher_readers() {
  static constexpr std::array<LauncherReader, 12> rows{{
      // launcher, precedence, speaks MPI, counts, reader
      {Launcher::explicit_options, 1, false, Counts::ranks, read_explicit_options},
      {Launcher::torchrun, 2, false, Counts::ranks, read_torchrun},
      {Launcher::open_mpi, 3, true, Counts::ranks, read_open_mpi},
      {Launcher::plain, 4, false, Counts::ranks, read_plain},
      {Launcher::pmix, 5, true, Counts::ranks_or_agents, read_pmix},
      {Launcher::pmi, 5, true, Counts::ranks, read_pmi},
      {Launcher::slurm, 6, false, Counts::ranks_or_agents, read_slurm},
      {Launcher::pals, 7, true, Counts::ranks_or_agents, read_pals},
      {Launcher::flux, 7, true, Counts::ranks_or_agents, read_flux},
      {Launcher::mvapich2, 7, true, Counts::ranks, read_mvapich2},
      {Launcher::horovod, 7, false, Counts::ranks, read_horovod},
      {Launcher::azure_batchai, 8, false, Counts::nodes, read_azure_batchai},
  }};
  return rows;
}

const LauncherReader& reader_of(Launcher launcher) {
  const auto rows = launcher_readers();
  return *std::find_if(rows.begin(), rows.end(), [&](const LauncherReader& row) { return row.launcher == launcher; });
}

}  // namespace libtrain::detail
