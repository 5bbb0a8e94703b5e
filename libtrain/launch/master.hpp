#pragma once

#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

/// The host of rank 0 and the port it should listen on, for ranks that meet over TCP. Needs world size, node count and
/// job. The port in AZ_BATCH_MASTER_NODE belongs to the Azure Batch service and is never used. Throws EnvironmentError
/// for values that are no host or no port.
void find_master(Launch& launch, const Environment& environment);

}  // namespace libtrain::detail
