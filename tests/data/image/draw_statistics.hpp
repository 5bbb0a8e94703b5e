#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace libtrain::test {

inline double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

inline double variance(const std::vector<double>& values) {
  const double center = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - center) * (value - center);
  return sum / static_cast<double>(values.size());
}

/// Kolmogorov and Smirnov: the largest distance between the distribution of the values and the one they should have, in
/// units of 1 / sqrt(number). One sample in a million has more than 2.69: sqrt(log(2e6) / 2).
template <typename Distribution>
double distance(std::vector<double> values, const Distribution& distribution) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = distribution(values[i]);
    largest =
        std::max({largest, expected - static_cast<double>(i) / count, static_cast<double>(i + 1) / count - expected});
  }
  return largest * std::sqrt(count);
}

/// The distribution function of uniform draws from low to high.
inline auto uniform_over(double low, double high) {
  return [=](double value) { return std::clamp((value - low) / (high - low), 0.0, 1.0); };
}

}  // namespace libtrain::test
