#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

std::optional<Claim> read_plain(const Environment& environment, const LaunchOptions& /*options*/) {
  return read_claim(environment, {.launcher = Launcher::plain,
                                  .rank = "RANK",
                                  .world_size = "WORLD_SIZE",
                                  .local_rank = "LOCAL_RANK",
                                  .local_world_size = "LOCAL_WORLD_SIZE",
                                  .node_rank = "NODE_RANK"});
}

}  // namespace libtrain::detail
