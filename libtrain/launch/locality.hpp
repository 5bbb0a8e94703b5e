#pragma once

#include <libtrain/launch/launch.hpp>
#include <libtrain/launch/resolve.hpp>

namespace libtrain::detail {

/// Fills in local rank, local world size, node rank and node count as far as the variables say them.
/// Throws EnvironmentError or UsageError where they contradict each other.
void find_locality(Launch& launch, const Resolution& resolution, const Environment& environment,
                   const LaunchOptions& options);

}  // namespace libtrain::detail
