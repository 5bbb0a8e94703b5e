#pragma once

#include <string>
#include <vector>

#include <libtrain/launch/claim.hpp>

namespace libtrain::detail {

/// Which family names this process's rank, and what the others say about it.
struct Resolution {
  Claim winner;                 ///< complete; a single process where no family claims anything
  std::vector<Claim> agreeing;  ///< complete claims of the same rank and world size: they may fill in what is missing
  bool plain_is_stale = false;  ///< RANK or WORLD_SIZE disagree with the winner, so LOCAL_RANK is not trusted either
  std::vector<std::string> warnings;
};

/// Takes the first complete claim in the order of families(). Incomplete ones before it must agree with it; later ones
/// that disagree become warnings, or an error where they are of equal standing.
/// Throws EnvironmentError or UsageError as detect_launch does.
Resolution resolve(const Environment& environment, const LaunchOptions& options);

}  // namespace libtrain::detail
