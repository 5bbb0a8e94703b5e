#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

// PMIx puts only the rank into the environment; the world size is the Slurm step's, or PMI's.
std::optional<Claim> read_pmix(const Environment& environment, const LaunchOptions& /*options*/) {
  const auto rank = read_rank(environment, "PMIX_RANK");
  if (!rank) return std::nullopt;
  auto claim = read_slurm_step(environment).value_or(Claim{});
  // A step of another rank is not what started this process, as under mpirun in a batch job.
  if (claim.rank && claim.rank->value != rank->value) claim = {};
  if (!claim.world_size) claim.world_size = read_count(environment, "PMI_SIZE");
  claim.launcher = Launcher::pmix;
  claim.rank = rank;
  claim.rank_name = "PMIX_RANK";
  claim.world_size_name = "SLURM_STEP_NUM_TASKS or PMI_SIZE";
  return claim;
}

}  // namespace libtrain::detail
