#include <numeric>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/launchers.hpp>
#include <libtrain/launch/detail/slurm_lists.hpp>

namespace libtrain::detail {
namespace {

/// True in processes that srun started. Batch scripts and interactive allocations have no step, or one of the reserved
/// numbers at the top of the 32-bit range.
bool in_step(const Environment& environment) {
  constexpr long long first_reserved = 0xfffffff0;
  const auto* name = environment.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
  const auto step = environment.get(name);
  if (!step || !environment.has("SLURM_PROCID")) return false;
  const auto number = parse_integer(*step, 0, 0xffffffff);
  if (!number) {
    throw EnvironmentError(
        text(name, " is ", in_quotes(*step), ", which is not the number of a Slurm step. Unset it."));
  }
  return *number < first_reserved;
}

std::optional<Sourced<int>> tasks_on_this_node(const Environment& environment, const LauncherVariables& found) {
  const auto* name =
      environment.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const auto list = environment.get(name);
  if (!list || !found.node_rank || !found.world_size) return std::nullopt;
  const auto tasks = parse_slurm_tasks_per_node(*list);
  // The list of the allocation does not apply to a step that uses only a part of it.
  if (std::accumulate(tasks.begin(), tasks.end(), 0LL) != found.world_size->value) return std::nullopt;
  const auto node = static_cast<std::size_t>(found.node_rank->value);
  if (node >= tasks.size()) return std::nullopt;
  return Sourced<int>{tasks[node], name};
}

}  // namespace

std::optional<LauncherVariables> read_slurm_step(const Environment& environment) {
  if (!in_step(environment)) return std::nullopt;
  LauncherVariables found{.launcher = Launcher::slurm};
  found.rank_name = "SLURM_PROCID";
  found.world_size_name = "SLURM_STEP_NUM_TASKS or SLURM_NTASKS";
  found.rank = read_rank(environment, "SLURM_PROCID");
  found.world_size = first_of(read_count(environment, "SLURM_STEP_NUM_TASKS"), read_count(environment, "SLURM_NTASKS"));
  found.local_rank = read_rank(environment, "SLURM_LOCALID");
  found.node_rank = read_rank(environment, "SLURM_NODEID");
  found.node_count =
      first_of(read_count(environment, "SLURM_STEP_NUM_NODES"), read_count(environment, "SLURM_JOB_NUM_NODES"));
  found.local_world_size = tasks_on_this_node(environment, found);
  return found;
}

std::vector<std::string> slurm_hosts_of_ranks(const Environment& environment, int world_size) {
  const auto distribution = environment.get("SLURM_DISTRIBUTION");
  const auto nodes = environment.get("SLURM_STEP_NODELIST");
  const auto counts = environment.get("SLURM_STEP_TASKS_PER_NODE");
  if (!nodes || !counts || (distribution && !distribution->starts_with("block"))) return {};
  const auto names = parse_slurm_node_list(*nodes);
  const auto tasks = parse_slurm_tasks_per_node(*counts);
  if (names.size() != tasks.size() || std::accumulate(tasks.begin(), tasks.end(), 0LL) != world_size) return {};
  std::vector<std::string> hosts;
  for (std::size_t node = 0; node < names.size(); ++node) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(tasks[node]), names[node]);
  }
  return hosts;
}

std::optional<LauncherVariables> read_slurm(const Environment& environment, const LaunchOptions& /*options*/) {
  auto found = read_slurm_step(environment);
  if (found && found->world_size && !found->is_multi_process()) return std::nullopt;
  return found;
}

}  // namespace libtrain::detail
