#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

// One process per node, whose world size the job's command line gives. Outside such a job the index counts nodes.
std::optional<Claim> read_azure_batchai(const Environment& environment, const LaunchOptions& options) {
  const auto index = read_rank(environment, "AZ_BATCHAI_TASK_INDEX");
  if (!index) return std::nullopt;
  Claim claim{.launcher = Launcher::azure_batchai};
  claim.rank_name = "AZ_BATCHAI_TASK_INDEX";
  claim.world_size_name = "--world-size";
  claim.rank = index;
  if (!options.world_size) return claim;
  claim.world_size = Sourced<int>{*options.world_size, "--world-size"};
  claim.local_rank = Sourced<int>{0, "AZ_BATCHAI_TASK_INDEX (one process per node)"};
  claim.local_world_size = Sourced<int>{1, "AZ_BATCHAI_TASK_INDEX (one process per node)"};
  claim.node_rank = index;
  claim.node_count = claim.world_size;
  return claim;
}

}  // namespace libtrain::detail
