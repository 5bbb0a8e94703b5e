#pragma once

#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// From `low` to `high`.
struct Interval {
  double low = 0;
  double high = 0;

  bool operator==(const Interval&) const = default;
};

/// Throws UsageError, with `what` for a name, unless smallest <= low <= high <= largest and both are finite.
void check_interval(const Interval& interval, double smallest, double largest, const char* what);

// Draws for augmentation: the same numbers from the same bits.

/// Uniform over the interval.
double uniform(const Interval& interval, SampleRandom& random);

/// A number whose logarithm is uniform between those of the ends, which are positive.
double log_uniform(const Interval& interval, SampleRandom& random);

/// Normal with mean 0 and variance 1, by Box and Muller (1958).
double normal(SampleRandom& random);

/// Beta(alpha, alpha), exactly: by Jöhnk (1964) up to alpha = 1, beyond by algorithm BB of Cheng (Generating beta
/// variates with nonintegral shape parameters, CACM 21, 1978). Throws UsageError unless alpha is positive and finite.
double symmetric_beta(double alpha, SampleRandom& random);

}  // namespace libtrain::data
