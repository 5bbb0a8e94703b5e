#include <bench/latency_fit.hpp>

#include <algorithm>
#include <cmath>

namespace libtrain::bench {

std::optional<LatencyFit> fit_latency(const std::vector<SizeTime>& times) {
  if (times.size() < 3) return std::nullopt;
  // Each equation latency + bytes * slope = seconds is divided by its seconds: the right-hand sides are all 1.
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (const auto& [bytes, seconds] : times) {
    const double a = 1 / seconds;
    const double b = static_cast<double>(bytes) / seconds;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    a1 += a;
    b1 += b;
  }
  const double determinant = aa * bb - ab * ab;
  const double slope = (aa * b1 - ab * a1) / determinant;
  if (!(determinant > 0) || !(slope > 0)) return std::nullopt;
  LatencyFit fit{.latency_s = (bb * a1 - ab * b1) / determinant, .bytes_per_s = 1 / slope};
  for (const auto& [bytes, seconds] : times) {
    const double predicted = fit.latency_s + static_cast<double>(bytes) * slope;
    fit.worst_error = std::max(fit.worst_error, std::abs(predicted - seconds) / seconds);
  }
  return fit;
}

}  // namespace libtrain::bench
