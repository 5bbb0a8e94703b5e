#include <libtrain/data/image/random_draws.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

// In (0, 1), for logarithms.
double open_uniform(SampleRandom& random) {
  double value = random.uniform();
  while (value == 0) value = random.uniform();
  return value;
}

// Draws u^(1/alpha) and v^(1/alpha) until their sum is at most 1; the fraction of the first is the result. For small
// alpha both powers underflow, but their logarithms do not.
double johnk(double alpha, SampleRandom& random) {
  for (;;) {
    const double x = std::log(open_uniform(random)) / alpha;
    const double y = std::log(open_uniform(random)) / alpha;
    if (std::exp(x) + std::exp(y) > 1) continue;
    const double larger = std::max(x, y);
    const double numerator = std::exp(x - larger);
    return numerator / (numerator + std::exp(y - larger));
  }
}

// Cheng's algorithm BB with a = b = alpha > 1, in its symbols.
double cheng(double alpha, SampleRandom& random) {
  const double sum = 2 * alpha;
  const double beta = std::sqrt((sum - 2) / (2 * alpha * alpha - sum));
  const double gamma = alpha + 1 / beta;
  for (;;) {
    const double u1 = open_uniform(random);
    const double u2 = open_uniform(random);
    const double v = beta * std::log(u1 / (1 - u1));
    const double w = alpha * std::exp(v);
    const double z = u1 * u1 * u2;
    const double r = gamma * v - std::log(4.0);
    const double s = alpha + r - w;
    const double t = std::log(z);
    if (s + 1 + std::log(5.0) >= 5 * z || s >= t || r + sum * std::log(sum / (alpha + w)) >= t) {
      return w / (alpha + w);
    }
  }
}

}  // namespace

void check_interval(const Interval& interval, double smallest, double largest, const char* what) {
  // Negated, so that NaN is refused.
  if (!(smallest <= interval.low && interval.low <= interval.high && interval.high <= largest &&
        std::isfinite(interval.high))) {
    throw UsageError(text("The ", what, " is drawn from ", interval.low, " to ", interval.high,
                          "; the ends must be finite, in that order, and from ", smallest, " to ", largest, "."));
  }
}

double uniform(const Interval& interval, SampleRandom& random) {
  return interval.low + (interval.high - interval.low) * random.uniform();
}

double log_uniform(const Interval& interval, SampleRandom& random) {
  return std::exp(uniform({std::log(interval.low), std::log(interval.high)}, random));
}

double normal(SampleRandom& random) {
  const double radius = std::sqrt(-2 * std::log(open_uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

double symmetric_beta(double alpha, SampleRandom& random) {
  if (!(alpha > 0 && std::isfinite(alpha))) {
    throw UsageError(text("The shape of a beta distribution is ", alpha, "; it must be positive and finite."));
  }
  return alpha <= 1 ? johnk(alpha, random) : cheng(alpha, random);
}

}  // namespace libtrain::data
