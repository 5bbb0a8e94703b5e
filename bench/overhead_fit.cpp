#include <bench/overhead_fit.hpp>

#include <algorithm>
#include <cmath>
#include <tuple>

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_lstsq.h>

namespace libtrain::bench {

namespace {

constexpr double kSmallest = 1e-6;

double scale_of(const OverheadPoint& point) {
  return std::max(point.seconds, kSmallest);
}

bool determines_fit(const std::vector<OverheadPoint>& points) {
  if (points.size() < 4) return false;
  const auto differs = [&](std::int64_t OverheadPoint::* member) {
    return std::any_of(points.begin(), points.end(),
                       [&](const OverheadPoint& point) { return point.*member != points.front().*member; });
  };
  return differs(&OverheadPoint::parameters) && differs(&OverheadPoint::buckets);
}

}  // namespace

std::optional<OverheadFit> fit_overhead(const std::vector<OverheadPoint>& points) {
  if (!determines_fit(points)) return std::nullopt;
  const auto rows = static_cast<std::int64_t>(points.size());
  const auto left = at::empty({rows, 3}, at::kDouble);
  const auto right = at::empty({rows, 1}, at::kDouble);
  auto* row = left.mutable_data_ptr<double>();
  auto* value = right.mutable_data_ptr<double>();
  for (const auto& point : points) {
    *row++ = 1 / scale_of(point);
    *row++ = static_cast<double>(point.buckets) / scale_of(point);
    *row++ = static_cast<double>(point.parameters) / scale_of(point);
    *value++ = point.seconds / scale_of(point);
  }
  const auto solution = std::get<0>(at::linalg_lstsq(left, right)).contiguous();
  const auto* solved = solution.const_data_ptr<double>();
  OverheadFit fit{.fixed_s = solved[0], .per_bucket_s = solved[1], .per_parameter_s = solved[2]};
  for (const auto& point : points) {
    const double predicted = fit.fixed_s + static_cast<double>(point.buckets) * fit.per_bucket_s +
                             static_cast<double>(point.parameters) * fit.per_parameter_s;
    fit.worst_error = std::max(fit.worst_error, std::abs(predicted - point.seconds) / scale_of(point));
  }
  return fit;
}

}  // namespace libtrain::bench
