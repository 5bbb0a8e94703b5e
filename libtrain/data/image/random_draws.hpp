#pragma once

#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

struct Interval {
  double low = 0;
  double high = 0;

  bool operator==(const Interval&) const = default;
};

/// Throws UsageError, which names the interval `what`, unless smallest <= low <= high <= largest and both are finite.
void check_interval(const Interval& interval, double smallest, double largest, const char* what);

/// Uniform over the interval.
double uniform(const Interval& interval, SampleRandom& random);

/// A number whose logarithm is uniform between those of the ends, which must be positive.
double log_uniform(const Interval& interval, SampleRandom& random);

/// Normal with mean 0 and variance 1, by Box and Muller (1958).
double normal(SampleRandom& random);

/// Beta(alpha, alpha), exactly: by Jöhnk (1964) up to alpha = 1, above by algorithm BB of Cheng (Generating beta
/// variates with nonintegral shape parameters, CACM 21, 1978). Throws UsageError unless alpha is positive and finite.
double symmetric_beta(double alpha, SampleRandom& random);

}  // namespace libtrain::data
