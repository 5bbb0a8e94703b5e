#include <libtrain/launch/detail/resolve.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/launchers.hpp>

namespace libtrain::detail {
namespace {

using Number = std::optional<Sourced<int>>;

Sourced<std::optional<int>> known_or_not(const Number& number) {
  if (!number) return {std::nullopt, "not known before the ranks connect"};
  return {number->value, number->source};
}

/// The winner's own number, or that of another launcher with the same rank and world size.
Number claimed(const Resolution& resolution, Number LauncherVariables::* member) {
  auto number = resolution.winner.*member;
  for (const auto& found : resolution.agreeing) number = first_of(number, found.*member);
  return number;
}

Number find_local_rank(const Resolution& resolution, const Environment& environment, const LaunchOptions& options,
                       std::vector<std::string>& warnings) {
  if (options.local_rank) return Sourced<int>{*options.local_rank, "--local-rank"};
  const auto plain = resolution.plain_is_stale ? Number{} : read_rank(environment, "LOCAL_RANK");
  const auto own = claimed(resolution, &LauncherVariables::local_rank);
  if (plain && own && plain->value != own->value) {
    warnings.push_back(text("LOCAL_RANK=", plain->value, " wins over ", own->source, "=", own->value,
                            ", which is different. Unset LOCAL_RANK if it is left over."));
  }
  return first_of(plain, own);
}

Number find_node_count(const Resolution& resolution, const Environment& environment, int world_size) {
  const auto count = claimed(resolution, &LauncherVariables::node_count);
  if (count) return count;
  // A job of several nodes may start fewer ranks on one of them.
  const auto azure = read_count(environment, "AZUREML_NODE_COUNT");
  return azure && azure->value <= world_size ? azure : std::nullopt;
}

void check_below(const Number& index, const Number& count) {
  if (!index || !count || index->value < count->value) return;
  const auto message = text(index->source, "=", index->value, " is not below ", count->source, "=", count->value,
                            ". Correct or unset one of them.");
  if (index->source.starts_with("--")) throw UsageError(message);
  throw EnvironmentError(message);
}

}  // namespace

void find_locality(Launch& launch, const Resolution& resolution, const Environment& environment,
                   const LaunchOptions& options) {
  if (launch.launcher == Launcher::slurm) launch.hosts = slurm_hosts_of_ranks(environment, launch.world_size.value);
  const Number world_size = resolution.winner.world_size;
  auto local_rank = find_local_rank(resolution, environment, options, launch.warnings);
  auto local_size = claimed(resolution, &LauncherVariables::local_world_size);
  if (!local_size && !resolution.plain_is_stale) local_size = read_count(environment, "LOCAL_WORLD_SIZE");
  auto node_rank = claimed(resolution, &LauncherVariables::node_rank);
  if (!node_rank) node_rank = read_rank(environment, "AZUREML_CR_NODE_RANK");
  auto node_count = find_node_count(resolution, environment, world_size->value);

  if (local_size && local_size->value > world_size->value) {
    throw EnvironmentError(text(local_size->source, "=", local_size->value, " is more than ", world_size->source, "=",
                                world_size->value, ". Correct or unset one of them."));
  }
  if (world_size->value == 1) {
    const Sourced<int> one{1, world_size->source};
    check_below(local_rank, one);
    local_size = node_count = one;
    local_rank = node_rank = Sourced<int>{0, world_size->source};
  } else if (local_size && local_size->value == world_size->value) {
    node_count = Sourced<int>{1, local_size->source + " equals " + world_size->source};
    node_rank = Sourced<int>{0, node_count->source};
  } else if (node_count && node_count->value == 1) {
    const auto source = node_count->source + ", one node";
    if (!local_size) local_size = Sourced<int>{world_size->value, source};
    if (!local_rank) local_rank = Sourced<int>{resolution.winner.rank->value, source};
  }
  check_below(local_rank, local_size);
  check_below(local_rank, world_size);
  check_below(node_rank, node_count);

  launch.local_rank = known_or_not(local_rank);
  launch.local_world_size = known_or_not(local_size);
  launch.node_rank = known_or_not(node_rank);
  launch.node_count = known_or_not(node_count);
}

}  // namespace libtrain::detail
