#pragma once

#include <vector>

#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// "min", "median" and "max" of whole numbers; null where there are none. The median of an even count is the mean of
/// the two in the middle.
Json spread(const std::vector<double>& values);

}  // namespace libtrain::inspect
