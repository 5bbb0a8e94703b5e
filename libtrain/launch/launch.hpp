#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/environment.hpp>

namespace libtrain {

/// A value and where it came from: the name of an environment variable or option, or a few words.
template <typename T>
struct Sourced {
  T value{};
  std::string source = {};
};

/// The launcher that started this process, as detected from its variables.
enum class Launcher {
  explicit_options,
  torchrun,
  open_mpi,
  plain,
  pmix,
  pmi,
  slurm,
  pals,
  flux,
  mvapich2,
  horovod,
  azure_batchai,
  single,
};

/// A short stable name, equal to the enumerator: "open_mpi", "torchrun", "single".
std::string_view to_string(Launcher launcher);

/// Values that the caller sets instead of the environment. They take precedence.
struct LaunchOptions {
  std::optional<int> rank = {};
  std::optional<int> world_size = {};
  std::optional<int> local_rank = {};
  std::optional<std::string> dist_url = {};  ///< tcp://host:port, file:///path or env://
  std::optional<std::string> dist_backend = {};
};

/// Rank, world size and rendezvous of this process. A default-constructed Launch is a single process.
struct Launch {
  Sourced<int> rank;
  Sourced<int> world_size{.value = 1};
  /// std::nullopt if the launcher does not set it: the ranks determine it when they connect.
  Sourced<std::optional<int>> local_rank;
  Sourced<std::optional<int>> local_world_size;
  Sourced<std::optional<int>> node_rank;
  Sourced<std::optional<int>> node_count;
  /// The host of each rank, for messages; empty if the launcher does not provide it.
  std::vector<std::string> hosts;
  /// The host of rank 0, without brackets around an IPv6 address.
  Sourced<std::optional<std::string>> master_address;
  Sourced<std::optional<int>> master_port;
  /// The name of the job, the same on all its ranks and different from other jobs: "Slurm job 45, step 0". std::nullopt
  /// if no variable gives it.
  Sourced<std::optional<std::string>> job;
  /// "mpi", "tcp://host:port", "file:///path", or "none" for a single process.
  Sourced<std::string> rendezvous{.value = "none"};
  /// The requested backend, in lower case; "auto" by default.
  Sourced<std::string> backend{.value = "auto"};
  Launcher launcher = Launcher::single;
  /// Ambiguities that were resolved, as sentences for rank 0 to log.
  std::vector<std::string> warnings;
};

/// Detects rank, world size and rendezvous. A pure function: no system calls, no name lookups. Throws EnvironmentError
/// for variables that are incomplete, invalid or contradictory, and UsageError for such options; both name the
/// variables and their values. docs/launch.md has the table of the variables and their order.
Launch detect_launch(const Environment& environment, const LaunchOptions& options = {});

}  // namespace libtrain
