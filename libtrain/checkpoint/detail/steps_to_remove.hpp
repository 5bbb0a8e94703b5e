#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/checkpoint/checkpoint_manifest.hpp>
#include <libtrain/checkpoint/checkpoint_retention.hpp>

namespace libtrain::detail {

/// A checkpoint of this run, or of a run that it continues.
struct KeptCheckpoint {
  std::int64_t step = 0;
  std::optional<double> metric = {};
  bool is_marked = false;
};

/// The steps to remove of `checkpoints`, which are in the order in which they were written.
std::vector<std::int64_t> steps_to_remove(const std::vector<KeptCheckpoint>& checkpoints,
                                          const CheckpointRetention& retention);

/// The same of those `manifests`, oldest first, whose last run is one of `run_ids`. `marked` is the step that was
/// marked as the best.
std::vector<std::int64_t> steps_to_remove(const std::vector<CheckpointManifest>& manifests,
                                          const std::vector<std::string>& run_ids, const CheckpointRetention& retention,
                                          std::optional<std::int64_t> marked);

/// The one of these that is kept for its metric, if one has it.
std::optional<KeptCheckpoint> best_kept(const std::vector<CheckpointManifest>& manifests,
                                        const std::vector<std::string>& run_ids, const CheckpointRetention& retention);

}  // namespace libtrain::detail
