#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

// MPICH and Intel MPI; Cray names the local rank differently.
std::optional<Claim> read_pmi(const Environment& environment, const LaunchOptions& /*options*/) {
  auto claim = read_claim(environment, {.launcher = Launcher::pmi,
                                        .rank = "PMI_RANK",
                                        .world_size = "PMI_SIZE",
                                        .local_rank = "MPI_LOCALRANKID",
                                        .local_world_size = "MPI_LOCALNRANKS"});
  // Where PALS names the rank, PMI_SIZE is its world size and nothing is missing.
  if (!claim || (!claim->rank && environment.has("PALS_RANKID"))) return std::nullopt;
  claim->local_rank = first_of(claim->local_rank, read_rank(environment, "PMI_LOCAL_RANK"));
  claim->local_world_size = first_of(claim->local_world_size, read_count(environment, "PMI_LOCAL_SIZE"));
  return claim;
}

}  // namespace libtrain::detail
