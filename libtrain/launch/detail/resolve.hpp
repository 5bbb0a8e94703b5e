#pragma once

#include <string>
#include <vector>

#include <libtrain/launch/detail/launcher_variables.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

/// Which launcher names this process's rank, and what the others say about it.
struct Resolution {
  LauncherVariables winner;  ///< complete; a single process where no launcher says anything
  /// Complete ones of the same rank and world size: they may fill in what is missing.
  std::vector<LauncherVariables> agreeing;
  bool plain_is_stale = false;  ///< RANK or WORLD_SIZE disagree with the winner, so LOCAL_RANK is not trusted either
  std::vector<std::string> warnings;
};

/// Takes the first complete variables in the order of launcher_readers(). Incomplete ones before it must agree with it;
/// later ones that disagree become warnings, or an error where they are of equal precedence. Throws EnvironmentError or
/// UsageError as detect_launch does.
Resolution resolve(const Environment& environment, const LaunchOptions& options);

// The steps of detect_launch after it, in this order.

/// Fills in local rank, local world size, node rank and node count as far as the variables say them.
/// Throws EnvironmentError or UsageError where they contradict each other.
void find_locality(Launch& launch, const Resolution& resolution, const Environment& environment,
                   const LaunchOptions& options);

/// The host of rank 0 and the port it should listen on, for ranks that meet over TCP. Needs world size, node count and
/// job. The port in AZ_BATCH_MASTER_NODE belongs to the Azure Batch service and is never used. Throws EnvironmentError
/// for values that are no host or no port.
void find_master(Launch& launch, const Environment& environment);

/// How the ranks meet. Needs the rest of `launch`, and may add a warning to it.
/// Throws UsageError for a --dist-url, and EnvironmentError for a variable, that is not tcp://, file:/// or env://;
/// also EnvironmentError where the ranks have to meet over TCP and nothing names the host of rank 0.
void find_rendezvous(Launch& launch, const Resolution& resolution, const Environment& environment,
                     const LaunchOptions& options);

}  // namespace libtrain::detail
