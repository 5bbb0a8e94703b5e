#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace libtrain::bench {

/// The time of one message size.
struct SizeTime {
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// seconds = latency_s + bytes / bytes_per_s, and how far that is from the times it was made from.
struct LatencyFit {
  double latency_s = 0;
  double bytes_per_s = 0;
  double worst_error = 0;  ///< the largest |predicted - measured| / measured
};

/// The fit of libtrain's own tuning, see fit_link. Nothing for fewer than three sizes.
std::optional<LatencyFit> fit_latency(const std::vector<SizeTime>& times);

}  // namespace libtrain::bench
