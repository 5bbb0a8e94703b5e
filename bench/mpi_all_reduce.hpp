#pragma once

#include <cstddef>
#include <functional>

#include <libtrain/numeric/data_type.hpp>

namespace libtrain::bench {

/// Combines `count` elements of all ranks. Equal pointers mean in place.
using HostAllReduce =
    std::function<void(const void* input, void* output, std::size_t count, DataType type, ReduceOp op)>;

/// One plain MPI_Allreduce a call, on a communicator of its own over the `world_size` ranks of this job, all of which
/// must call it, and drop it before they end. Throws EnvironmentError in a build without MPI or where MPI knows another
/// number of ranks; the calls throw UsageError for what MPI has no word for: 16-bit types, averages.
HostAllReduce mpi_all_reduce(int world_size);

}  // namespace libtrain::bench
