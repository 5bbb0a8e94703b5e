#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <libtrain/launch/claim.hpp>

/// One reader per launcher, each in families/<launcher>.cpp. A reader returns nothing where its launcher's variables
/// are not set, and throws EnvironmentError (explicit options: UsageError) where they are set and unreadable. To add a
/// launcher: write its file, declare the reader here, and give it a row in families() in families.cpp.
namespace libtrain::detail {

std::optional<Claim> read_explicit_options(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_torchrun(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_open_mpi(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_plain(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_pmix(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_pmi(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_slurm(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_pals(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_flux(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_mvapich2(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_horovod(const Environment& environment, const LaunchOptions& options);
std::optional<Claim> read_azure_batchai(const Environment& environment, const LaunchOptions& options);

/// What the numbers of a family stand for when another family has the say.
enum class Counts {
  ranks,
  ranks_or_agents,  ///< it may have started one agent per node, which then started the ranks
  nodes,
};

struct Family {
  Launcher launcher;
  /// Order of precedence, 1 first. Families of equal standing must not disagree.
  int standing;
  /// MPI_Init sees the ranks that the variables name.
  bool speaks_mpi;
  Counts counts;
  std::optional<Claim> (*read)(const Environment&, const LaunchOptions&);
};

/// All families in order of precedence.
std::span<const Family> families();

/// The row of a launcher that is not `single`.
const Family& family_of(Launcher launcher);

/// The Slurm step this process belongs to, of one process or more; nothing outside a step, as in a batch script.
std::optional<Claim> read_slurm_step(const Environment& environment);

/// The host of each rank of a Slurm step; nothing where its tasks are not laid out in blocks, or the variables do not
/// say.
std::vector<std::string> slurm_hosts_of_ranks(const Environment& environment, int world_size);

}  // namespace libtrain::detail
