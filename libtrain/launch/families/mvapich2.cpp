#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

std::optional<Claim> read_mvapich2(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_claim(environment, {.launcher = Launcher::mvapich2,
                                  .rank = "MV2_COMM_WORLD_RANK",
                                  .world_size = "MV2_COMM_WORLD_SIZE",
                                  .local_rank = "MV2_COMM_WORLD_LOCAL_RANK",
                                  .local_world_size = "MV2_COMM_WORLD_LOCAL_SIZE"});
}

}  // namespace libtrain::detail
