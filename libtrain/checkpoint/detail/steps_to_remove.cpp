#include <libtrain/checkpoint/detail/steps_to_remove.hpp>

#include <algorithm>
#include <cstddef>

namespace libtrain::detail {

namespace {

const KeptCheckpoint* best_of(const std::vector<KeptCheckpoint>& checkpoints, CheckpointRetention::Best best) {
  const KeptCheckpoint* found = nullptr;
  for (const auto& checkpoint : checkpoints) {
    if (!checkpoint.metric) continue;
    const auto is_better = [&](double one, double other) {
      return best == CheckpointRetention::Best::lowest ? one < other : one > other;
    };
    if (found == nullptr || is_better(*checkpoint.metric, *found->metric)) found = &checkpoint;
  }
  return found;
}

std::vector<KeptCheckpoint> kept_of(const std::vector<CheckpointManifest>& manifests,
                                    const std::vector<std::string>& run_ids, const CheckpointRetention& retention,
                                    std::optional<std::int64_t> marked) {
  std::vector<KeptCheckpoint> checkpoints;
  for (auto run = run_ids.begin(); run != run_ids.end(); ++run) {
    if (std::find(run_ids.begin(), run, *run) != run) continue;  // a run that has continued itself
    for (const auto& manifest : manifests) {
      if (manifest.run_ids.back() != *run) continue;
      checkpoints.push_back({.step = manifest.step, .is_marked = marked == manifest.step});
      const auto metric = manifest.metrics.find(retention.metric);
      if (metric != manifest.metrics.end()) checkpoints.back().metric = metric->second;
    }
  }
  return checkpoints;
}

}  // namespace

std::vector<std::int64_t> steps_to_remove(const std::vector<KeptCheckpoint>& checkpoints,
                                          const CheckpointRetention& retention) {
  std::vector<std::int64_t> steps;
  const auto last = retention.last ? static_cast<std::size_t>(*retention.last) : checkpoints.size();
  const auto* best = best_of(checkpoints, retention.best);
  for (std::size_t i = 0; i + last < checkpoints.size(); ++i) {
    if (!checkpoints[i].is_marked && &checkpoints[i] != best) steps.push_back(checkpoints[i].step);
  }
  return steps;
}

std::vector<std::int64_t> steps_to_remove(const std::vector<CheckpointManifest>& manifests,
                                          const std::vector<std::string>& run_ids, const CheckpointRetention& retention,
                                          std::optional<std::int64_t> marked) {
  return steps_to_remove(kept_of(manifests, run_ids, retention, marked), retention);
}

std::optional<KeptCheckpoint> best_kept(const std::vector<CheckpointManifest>& manifests,
                                        const std::vector<std::string>& run_ids, const CheckpointRetention& retention) {
  const auto checkpoints = kept_of(manifests, run_ids, retention, std::nullopt);
  const auto* const best = best_of(checkpoints, retention.best);
  return best != nullptr ? std::optional{*best} : std::nullopt;
}

}  // namespace libtrain::detail
