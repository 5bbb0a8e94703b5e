#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

std::optional<Claim> read_flux(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_claim(environment, {.launcher = Launcher::flux,
                                  .rank = "FLUX_TASK_RANK",
                                  .world_size = "FLUX_JOB_SIZE",
                                  .local_rank = "FLUX_TASK_LOCAL_ID",
                                  .node_count = "FLUX_JOB_NNODES"});
}

}  // namespace libtrain::detail
