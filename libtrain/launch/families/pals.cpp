#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

// PALS has no variable of its own for the world size.
std::optional<Claim> read_pals(const Environment& environment, const LaunchOptions& /*options*/) {
  if (!environment.has("PALS_RANKID")) return std::nullopt;
  return read_claim(environment, {.launcher = Launcher::pals,
                                  .rank = "PALS_RANKID",
                                  .world_size = "PMI_SIZE",
                                  .local_rank = "PALS_LOCAL_RANKID",
                                  .local_world_size = "PALS_LOCAL_SIZE",
                                  .node_rank = "PALS_NODEID"});
}

}  // namespace libtrain::detail
