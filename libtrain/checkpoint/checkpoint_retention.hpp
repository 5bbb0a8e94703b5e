#pragma once

#include <optional>
#include <string>

namespace libtrain {

/// Which of a run's checkpoints are kept when a new one has been committed: the last ones, the best one by a metric,
/// and the one that CheckpointWriter::mark_best() marked. All others of the run are removed.
struct CheckpointRetention {
  enum class Best { lowest, highest };

  std::optional<int> last = 3;  ///< at least 1; std::nullopt keeps all
  std::string metric = {};      ///< of CheckpointManifest::metrics, such as "accuracy"; empty: none is the best
  Best best = Best::lowest;     ///< value of that metric; of equal ones the earlier is better
};

}  // namespace libtrain
