#include <libtrain/checkpoint/detail/steps_to_remove.hpp>

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

}  // namespace libtrain::detail
