#include <libtrain/observe/detail/percentile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

double percentile(std::vector<double> values, double share) {
  if (values.empty()) throw UsageError("There are no values for a percentile. Measure at least one.");
  if (!(share >= 0.0 && share <= 1.0)) throw UsageError(text("The share ", share, " is not between 0 and 1."));
  if (std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); })) {
    throw UsageError("A value for a percentile is NaN. Leave NaN out of the percentile.");
  }
  const double position = share * static_cast<double>(values.size() - 1);
  const auto index = static_cast<std::ptrdiff_t>(position);
  const double weight = position - static_cast<double>(index);
  const auto lower = values.begin() + index;
  std::nth_element(values.begin(), lower, values.end());
  if (weight == 0.0) return *lower;
  const double upper = *std::min_element(lower + 1, values.end());
  return *lower + weight * (upper - *lower);
}

}  // namespace libtrain::detail
