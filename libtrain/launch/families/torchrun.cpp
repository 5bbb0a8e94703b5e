#include <libtrain/launch/families.hpp>

namespace libtrain::detail {

// torchrun may itself run under one mpirun or srun process per node: its own variables name the ranks.
std::optional<Claim> read_torchrun(const Environment& environment, const LaunchOptions& /*options*/) {
  if (!environment.has("TORCHELASTIC_RUN_ID")) return std::nullopt;
  const VariableNames names{.launcher = Launcher::torchrun,
                            .rank = "RANK",
                            .world_size = "WORLD_SIZE",
                            .local_rank = "LOCAL_RANK",
                            .local_world_size = "LOCAL_WORLD_SIZE",
                            .node_rank = "GROUP_RANK",
                            .node_count = "GROUP_WORLD_SIZE"};
  // The run id alone is half a claim: better refused than taken for a single process.
  return read_claim(environment, names)
      .value_or(Claim{.launcher = names.launcher,
                      .rank_name = std::string{names.rank},
                      .world_size_name = std::string{names.world_size}});
}

}  // namespace libtrain::detail
