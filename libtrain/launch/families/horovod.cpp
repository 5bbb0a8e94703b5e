#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

// HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT belong to the server of horovodrun, which need not be where rank 0 is.
std::optional<Claim> read_horovod(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_claim(environment, {.launcher = Launcher::horovod,
                                  .rank = "HOROVOD_RANK",
                                  .world_size = "HOROVOD_SIZE",
                                  .local_rank = "HOROVOD_LOCAL_RANK",
                                  .local_world_size = "HOROVOD_LOCAL_SIZE",
                                  .node_rank = "HOROVOD_CROSS_RANK",
                                  .node_count = "HOROVOD_CROSS_SIZE"});
}

}  // namespace libtrain::detail
