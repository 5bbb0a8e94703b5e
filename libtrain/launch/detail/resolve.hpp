#pragma once

#include <string>
#include <vector>

#include <libtrain/launch/detail/launcher_variables.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

/// The launcher that decides this process's rank, and the values of other launchers.
struct Resolution {
  LauncherVariables winner;  ///< complete; a single process if no launcher's variables are set
  /// Complete variables with the same rank and world size, which may provide missing values.
  std::vector<LauncherVariables> agreeing;
  bool plain_is_stale = false;  ///< RANK or WORLD_SIZE differ from the winner, so LOCAL_RANK is not used either
  std::vector<std::string> warnings;
};

/// Takes the first complete variables in the order of launcher_readers(). Incomplete variables before them must agree
/// with them; later variables that differ cause a warning, or an error if they have equal precedence. Throws
/// EnvironmentError or UsageError like detect_launch.
Resolution resolve(const Environment& environment, const LaunchOptions& options);

// The steps of detect_launch after it, in this order.

/// Sets local rank, local world size, node rank and node count as far as the variables provide them.
/// Throws EnvironmentError or UsageError if they contradict each other.
void find_locality(Launch& launch, const Resolution& resolution, const Environment& environment,
                   const LaunchOptions& options);

/// Sets the host and port of rank 0, for ranks that connect over TCP. Needs world size, node count and job. The port in
/// AZ_BATCH_MASTER_NODE belongs to the Azure Batch service and is never used. Throws EnvironmentError for values that
/// are not a host or not a port.
void find_master(Launch& launch, const Environment& environment);

/// Sets the rendezvous of the ranks. Needs the rest of `launch`, and may add a warning to it.
/// Throws UsageError for a --dist-url, and EnvironmentError for a variable, that is not tcp://, file:/// or env://;
/// also EnvironmentError if the ranks must connect over TCP and the host of rank 0 is not given.
void find_rendezvous(Launch& launch, const Resolution& resolution, const Environment& environment,
                     const LaunchOptions& options);

}  // namespace libtrain::detail
