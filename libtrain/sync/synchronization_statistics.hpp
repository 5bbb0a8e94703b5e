#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace libtrain {

/// What one bucket has cost a rank, summed over rounds.
struct BucketStatistics {
  std::size_t bytes = 0;        ///< of its gradients
  double seconds_reducing = 0;  ///< its collectives were under way
  std::int64_t reductions = 0;

  /// 0 before the first reduction.
  double bytes_per_s() const {
    return seconds_reducing > 0 ? static_cast<double>(bytes) * static_cast<double>(reductions) / seconds_reducing : 0;
  }
};

/// What synchronising has cost a rank. Buckets are those of the present plan.
struct SynchronizationStatistics {
  std::int64_t rounds = 0;
  double seconds_waiting = 0;   ///< wait() waited: communication that nothing has hidden
  double seconds_reducing = 0;  ///< collectives were under way
  std::vector<BucketStatistics> buckets = {};

  /// The share of communication that ran beside backward(): 0 to 1; 1 where there was none.
  double overlap_share() const {
    if (seconds_reducing <= 0 || seconds_waiting <= 0) return 1;
    return seconds_waiting < seconds_reducing ? 1 - seconds_waiting / seconds_reducing : 0;
  }
};

}  // namespace libtrain
