#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace libtrain::bench {

/// What a step's bookkeeping took.
struct OverheadPoint {
  std::int64_t parameters = 0;
  std::int64_t buckets = 0;
  double seconds = 0;
};

/// seconds = fixed_s + buckets * per_bucket_s + parameters * per_parameter_s, and how far that is from what it was made
/// from.
struct OverheadFit {
  double fixed_s = 0;
  double per_bucket_s = 0;
  double per_parameter_s = 0;
  double worst_error = 0;  ///< the largest |predicted - measured| / measured
};

/// Least squares of the relative errors, so that small models count as much as large ones; what is under a microsecond
/// counts as one. Nothing for fewer than four points, or where all have as many parameters or as many buckets.
std::optional<OverheadFit> fit_overhead(const std::vector<OverheadPoint>& points);

}  // namespace libtrain::bench
