#include <bench/latency_fit.hpp>

#include <algorithm>
#include <cmath>

#include <libtrain/sync/detail/bucket_tuning.hpp>

namespace libtrain::bench {

std::optional<LatencyFit> fit_latency(const std::vector<SizeTime>& times) {
  if (times.size() < 3) return std::nullopt;
  std::vector<detail::ReductionTime> measured;
  for (const auto& [bytes, seconds] : times) measured.push_back({static_cast<std::size_t>(bytes), seconds});
  const auto link = detail::fit_link(measured);
  LatencyFit fit{.latency_s = link.latency_s, .bytes_per_s = link.bytes_per_s};
  for (const auto& [bytes, seconds] : times) {
    const double predicted = fit.latency_s + static_cast<double>(bytes) / fit.bytes_per_s;
    fit.worst_error = std::max(fit.worst_error, std::abs(predicted - seconds) / seconds);
  }
  return fit;
}

}  // namespace libtrain::bench
