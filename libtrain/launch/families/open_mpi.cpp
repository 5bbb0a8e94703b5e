#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

// OMPI_COMM_WORLD_NODE_RANK is the rank on this node over all jobs, not the index of the node.
std::optional<Claim> read_open_mpi(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_claim(environment, {.launcher = Launcher::open_mpi,
                                  .rank = "OMPI_COMM_WORLD_RANK",
                                  .world_size = "OMPI_COMM_WORLD_SIZE",
                                  .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                                  .local_world_size = "OMPI_COMM_WORLD_LOCAL_SIZE"});
}

}  // namespace libtrain::detail
