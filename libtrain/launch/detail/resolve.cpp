#include <libtrain/launch/detail/resolve.hpp>

#include <tuple>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/launchers.hpp>

namespace libtrain::detail {
namespace {

bool is_explicit(const LauncherVariables& found) {
  return found.launcher == Launcher::explicit_options;
}

[[noreturn]] void refuse_half(const LauncherVariables& found) {
  const auto missing = found.rank ? found.world_size_name : found.rank_name;
  if (is_explicit(found)) {
    throw UsageError(text(to_text(found), " is given but ", missing, " is not, and no launcher sets it. Give both."));
  }
  if (!found.rank && !found.world_size) {
    throw EnvironmentError(text("Variables of ", to_string(found.launcher), " are set, but ", found.rank_name, " and ",
                                found.world_size_name, " are not set. Unset the former or set the latter."));
  }
  const auto present = found.rank ? found.rank_name : found.world_size_name;
  throw EnvironmentError(text(to_text(found), " is set but ", missing, " is not. Set both, unset ", present,
                              ", or give --rank and --world-size."));
}

[[noreturn]] void refuse_half_against(const LauncherVariables& half, const LauncherVariables& winner) {
  if (is_explicit(half)) {
    throw UsageError(text(to_text(half), " disagrees with ", to_text(winner), " (", to_string(winner.launcher),
                          "). Remove the option, or give both --rank and --world-size."));
  }
  throw EnvironmentError(text(to_text(half), " (", to_string(half.launcher), ") disagrees with ", to_text(winner), " (",
                              to_string(winner.launcher), "), and only the latter is complete. Unset the former."));
}

LauncherVariables single_process() {
  return {.launcher = Launcher::single,
          .rank = Sourced<int>{0, "single process"},
          .world_size = Sourced<int>{1, "single process"}};
}

/// The winner and its row; null for a single process.
std::pair<LauncherVariables, const LauncherReader*> find_winner(const Environment& environment,
                                                                const LaunchOptions& options) {
  std::vector<LauncherVariables> halves;
  for (const auto& reader : launcher_readers()) {
    auto found = reader.read(environment, options);
    if (!found) continue;
    if (!found->is_complete() && !halves.empty() && is_explicit(halves.front())) {
      found->rank = first_of(found->rank, halves.front().rank);
      found->world_size = first_of(found->world_size, halves.front().world_size);
    }
    if (!found->is_complete()) {
      halves.push_back(*found);
      continue;
    }
    for (const auto& half : halves) {
      if (!agree(half, *found)) refuse_half_against(half, *found);
    }
    return {*found, &reader};
  }
  if (halves.size() == 1 && is_explicit(halves.front()) && !halves.front().rank && !halves.front().is_multi_process()) {
    return {single_process(), nullptr};
  }
  // In a job of one node, an index without a world size is normal.
  if (halves.size() == 1 && halves.front().launcher == Launcher::azure_batchai && halves.front().rank->value == 0 &&
      !environment.has("AZ_BATCH_HOST_LIST") && !environment.has("AZ_BATCH_NODE_LIST")) {
    return {single_process(), nullptr};
  }
  if (!halves.empty()) refuse_half(halves.front());
  return {single_process(), nullptr};
}

void check(const LauncherVariables& found) {
  if (found.rank->value < found.world_size->value) return;
  const auto message = text(to_text(found), ": the rank must be below the world size. Correct one of them.");
  if (found.rank->source.starts_with("--")) throw UsageError(message);
  throw EnvironmentError(message);
}

/// Whether the numbers of a later launcher are the same, or count something else than ranks.
bool is_compatible(const LauncherVariables& winner, const LauncherVariables& other, const LauncherReader& reader) {
  if (agree(winner, other) || reader.counts == Counts::nodes) return true;
  const bool exported_by_hand = winner.launcher == Launcher::explicit_options || winner.launcher == Launcher::plain;
  const bool may_be_agents = winner.is_multi_process() || !other.is_multi_process();  // each starts at least one rank
  if (reader.counts == Counts::ranks_or_agents && may_be_agents && !exported_by_hand) return true;
  if (winner.launcher != Launcher::torchrun) return false;
  // One torchrun agent per node, started by mpirun for example: the other launcher counts agents.
  return !other.world_size || (winner.node_count && winner.node_count->value == other.world_size->value);
}

void compare(Resolution& resolution, const LauncherReader& winning, const LauncherVariables& other,
             const LauncherReader& reader) {
  const auto& winner = resolution.winner;
  if (other.is_complete() && agree(winner, other)) resolution.agreeing.push_back(other);
  if (is_compatible(winner, other, reader)) return;
  if (reader.precedence == winning.precedence && (winner.is_multi_process() || other.is_multi_process())) {
    throw EnvironmentError(text(to_text(winner), " (", to_string(winner.launcher), ") and ", to_text(other), " (",
                                to_string(other.launcher),
                                ") disagree. Unset those of the launcher that did not start this job."));
  }
  if (reader.launcher == Launcher::plain) resolution.plain_is_stale = true;
  resolution.warnings.push_back(text(to_text(winner), " (", to_string(winner.launcher), ") wins over ", to_text(other),
                                     " (", to_string(other.launcher),
                                     "), which is different. Unset the latter if it is left over."));
}

// The tasks that a batch script or a shell of salloc requested, which only srun or mpirun starts; 0 if this is neither.
long long tasks_without_step(const Environment& environment) {
  const auto tasks = environment.get("SLURM_NTASKS");
  if (!tasks || read_slurm_step(environment)) return 0;
  return parse_integer(*tasks, 0, kMaxWorldSize).value_or(0);
}

}  // namespace

Resolution resolve(const Environment& environment, const LaunchOptions& options) {
  Resolution resolution;
  const LauncherReader* winning = nullptr;
  std::tie(resolution.winner, winning) = find_winner(environment, options);
  check(resolution.winner);
  if (winning == nullptr) {
    if (environment.has("AZ_BATCHAI_TASK_INDEX")) {
      resolution.warnings.push_back(
          "AZ_BATCHAI_TASK_INDEX=0 is set but no world size is, so this runs as a single process. Give "
          "--world-size in a job of several nodes.");
    }
    if (const auto tasks = tasks_without_step(environment); tasks > 1 && !options.world_size) {
      resolution.warnings.push_back(text("SLURM_NTASKS=", tasks, " asks for ", tasks,
                                         " processes, but neither srun nor mpirun has started this one, which runs "
                                         "alone. Start it with srun --mpi=pmix or mpirun, or give --world-size 1."));
    }
    return resolution;
  }
  bool later = false;
  for (const auto& reader : launcher_readers()) {
    if (later) {
      try {
        if (const auto other = reader.read(environment, options)) compare(resolution, *winning, *other, reader);
      } catch (const Error& error) {
        if (reader.precedence == winning->precedence) throw;
        resolution.warnings.push_back(text(error.what(), " It is ignored, because ", to_text(resolution.winner), " (",
                                           to_string(resolution.winner.launcher), ") wins."));
      }
    }
    later = later || &reader == winning;
  }
  return resolution;
}

}  // namespace libtrain::detail
