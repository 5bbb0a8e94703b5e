#pragma once

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/bucket_tuning.hpp>

namespace libtrain::detail {

/// Measures this communicator's all-reduce of float32 in memory that it allocates: latency and bandwidth, as this rank
/// saw them. Takes some tens of milliseconds on a host. All ranks must call it.
LinkCost measure_link(Communicator& communicator);

}  // namespace libtrain::detail
