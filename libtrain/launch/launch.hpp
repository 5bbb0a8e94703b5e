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

/// Who started this process, as far as its variables tell.
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

/// What the caller decides instead of the environment. Everything set here wins.
struct LaunchOptions {
  std::optional<int> rank = {};
  std::optional<int> world_size = {};
  std::optional<int> local_rank = {};
  std::optional<std::string> dist_url = {};  ///< tcp://host:port, file:///path or env://
  std::optional<std::string> dist_backend = {};
};

/// Which of how many processes this one is, and how it meets the others. Made without detect_launch: a single process.
struct Launch {
  Sourced<int> rank;
  Sourced<int> world_size{.value = 1};
  /// Nothing where the launcher does not say: the ranks find out when they have met.
  Sourced<std::optional<int>> local_rank;
  Sourced<std::optional<int>> local_world_size;
  Sourced<std::optional<int>> node_rank;
  Sourced<std::optional<int>> node_count;
  /// The host of each rank, where the launcher lets it be known; else empty. For messages.
  std::vector<std::string> hosts;
  /// The host of rank 0, without brackets around an IPv6 address.
  Sourced<std::optional<std::string>> master_address;
  Sourced<std::optional<int>> master_port;
  /// The job in words, the same on all its ranks and in no other job: "Slurm job 45, step 0". Nothing where no variable
  /// says it.
  Sourced<std::optional<std::string>> job;
  /// "mpi", "tcp://host:port", "file:///path", or "none" for a single process.
  Sourced<std::string> rendezvous{.value = "none"};
  /// What was asked for, in lower case; "auto" where nothing was.
  Sourced<std::string> backend{.value = "auto"};
  Launcher launcher = Launcher::single;
  /// What looked wrong but could be decided. Whole sentences, for rank 0 to log.
  std::vector<std::string> warnings;
};

/// Finds out who this process is. A pure function: no system calls, no name lookups.
/// Throws EnvironmentError for variables that are half set, garbage or contradictory, and UsageError for options that
/// are; both name the variables and their values. docs/launch.md has the table of what is read in which order.
Launch detect_launch(const Environment& environment, const LaunchOptions& options = {});

/// The accelerator that this process uses: its local rank modulo `visible_devices`, because some launchers show each
/// process its own device only. Throws UsageError where there is no device or the local rank is not known yet.
int device_index(const Launch& launch, int visible_devices);

}  // namespace libtrain
