#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace libtrain {

/// The cost of one bucket on a rank, summed over rounds.
struct BucketStatistics {
  std::size_t bytes = 0;        ///< of its gradients
  double seconds_reducing = 0;  ///< from the begin of its first collective to the end of its last
  std::int64_t reductions = 0;

  /// 0 before the first reduction.
  double bytes_per_s() const {
    return seconds_reducing > 0 ? static_cast<double>(bytes) * static_cast<double>(reductions) / seconds_reducing : 0;
  }
};

/// The cost of synchronisation on a rank. Buckets are those of the current plan.
struct SynchronizationStatistics {
  std::int64_t rounds = 0;
  /// In wait(): communication that did not overlap with computation. On a device, the time that the current stream has
  /// waited, of the rounds that the device has ended.
  double seconds_waiting = 0;
  double seconds_reducing = 0;  ///< of all buckets
  std::vector<BucketStatistics> buckets = {};

  /// The share of communication that overlapped with backward(): 0 to 1; 1 without communication.
  double overlap_share() const {
    if (seconds_reducing <= 0 || seconds_waiting <= 0) return 1;
    return seconds_waiting < seconds_reducing ? 1 - seconds_waiting / seconds_reducing : 0;
  }
};

}  // namespace libtrain
