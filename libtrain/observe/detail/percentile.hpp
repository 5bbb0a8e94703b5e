#pragma once

#include <vector>

namespace libtrain::detail {

/// The value below which `share` (0 to 1) of `values` lie: 0.5 is the median, 0 the minimum, 1 the maximum.
/// Interpolates linearly between two values, as numpy.percentile does (type 7 in Hyndman and Fan, "Sample Quantiles in
/// Statistical Packages", 1996). Throws UsageError for no values, for NaN, and for a share outside of that range.
double percentile(std::vector<double> values, double share);

}  // namespace libtrain::detail
