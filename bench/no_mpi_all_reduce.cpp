#include <bench/mpi_all_reduce.hpp>
#include <libtrain/base/error.hpp>

namespace libtrain::bench {

HostAllReduce mpi_all_reduce(int /*world_size*/) {
  throw EnvironmentError(
      "This libtrain was built without MPI, so it cannot be timed beside it: leave mpi out of --peers.",
      ErrorScope::all_ranks);
}

}  // namespace libtrain::bench
