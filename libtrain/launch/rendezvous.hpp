#pragma once

#include <libtrain/launch/launch.hpp>
#include <libtrain/launch/resolve.hpp>

namespace libtrain::detail {

/// How the ranks meet. Needs the rest of `launch`, and may add a warning to it.
/// Throws UsageError for a --dist-url, and EnvironmentError for a variable, that is not tcp://, file:/// or env://;
/// also EnvironmentError where the ranks have to meet over TCP and nothing names the host of rank 0.
void find_rendezvous(Launch& launch, const Resolution& resolution, const Environment& environment,
                     const LaunchOptions& options);

}  // namespace libtrain::detail
