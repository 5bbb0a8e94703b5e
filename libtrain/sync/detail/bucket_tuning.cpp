#include <libtrain/sync/detail/bucket_tuning.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kMinLimit = std::size_t{64} << 10;
constexpr std::size_t kMaxLimit = std::size_t{256} << 20;

// Predictions closer than this are equally good: measured times are not more accurate.
constexpr double kTie = 1e-3;

// Without latency, buckets of one gradient each would have no cost.
constexpr double kMinLatency = 1e-7;
constexpr double kMinSecondsPerByte = 1e-13;

// A reduction of nothing, or on one rank, may be shorter than the clock's resolution.
constexpr double kClockResolution = 1e-9;

struct Candidate {
  BucketLimits limits;
  std::size_t buckets = 0;
  double finish = 0;
};

std::vector<Candidate> candidates(const std::vector<GradientSpec>& gradients, const std::vector<double>& ready_s,
                                  const LinkCost& link, std::size_t alone_bytes) {
  std::vector<Candidate> result;
  for (auto limit = kMinLimit; limit <= kMaxLimit; limit *= 2) {
    for (auto first = kMinLimit; first <= limit; first *= 2) {
      const BucketLimits limits{.bucket_bytes = limit, .first_bucket_bytes = first, .alone_bytes = alone_bytes};
      const auto buckets = plan_buckets(gradients, limits);
      result.push_back({limits, buckets.size(), predict_finish(buckets, ready_s, link)});
    }
  }
  return result;
}

void require_usable(const LinkCost& link) {
  if (!(link.latency_s >= 0) || !(link.bytes_per_s > 0)) {
    throw UsageError(
        text("The link has a latency of ", link.latency_s, " s and a bandwidth of ", link.bytes_per_s,
             " bytes/s. Give a latency of 0 or more and a bandwidth above 0, such as fit_link() returns."));
  }
}

double ready_time(const std::vector<double>& ready_s, std::size_t member) {
  if (member >= ready_s.size()) {
    throw UsageError(text("A bucket has gradient ", member, ", but ready times were given for ", ready_s.size(),
                          " gradients. Give one for each gradient of the plan."));
  }
  if (!(ready_s[member] >= 0) || std::isinf(ready_s[member])) {
    throw UsageError(text("The ready time of gradient ", member, " is ", ready_s[member],
                          " s. Give seconds since backward() began."));
  }
  return ready_s[member];
}

void require_usable(const std::vector<ReductionTime>& times) {
  for (const auto& time : times) {
    if (!(time.seconds >= 0) || std::isinf(time.seconds)) {
      throw UsageError(text("The duration of a reduction of ", time.bytes, " bytes is ", time.seconds,
                            " s. Give measured times to fit_link()."));
    }
  }
  const auto other_size = [&](const ReductionTime& time) { return time.bytes != times.front().bytes; };
  if (std::none_of(times.begin(), times.end(), other_size)) {
    throw UsageError(text("fit_link() was given ", times.size(),
                          " times of fewer than two sizes. Measure reductions of two sizes or more, which the latency "
                          "and the bandwidth are computed from."));
  }
}

struct WeightedTime {
  double bytes = 0;
  double seconds = 0;
  double weight = 0;
};

// Squares of relative errors are squares of errors divided by the square of the time.
std::vector<WeightedTime> weighted(const std::vector<ReductionTime>& times) {
  std::vector<WeightedTime> result;
  for (const auto& time : times) {
    const double seconds = std::max(time.seconds, kClockResolution);
    result.push_back({static_cast<double>(time.bytes), seconds, 1 / (seconds * seconds)});
  }
  return result;
}

}  // namespace

double predict_finish(const std::vector<Bucket>& buckets, const std::vector<double>& ready_s, const LinkCost& link) {
  require_usable(link);
  double finish = 0;
  for (const auto& bucket : buckets) {
    double start = finish;
    for (const auto member : bucket.members) start = std::max(start, ready_time(ready_s, member));
    finish = start + link.latency_s + static_cast<double>(bucket.bytes) / link.bytes_per_s;
  }
  return finish;
}

BucketLimits choose_limits(const std::vector<GradientSpec>& gradients, const std::vector<double>& ready_s,
                           const LinkCost& link, std::size_t alone_bytes) {
  if (ready_s.size() != gradients.size()) {
    throw UsageError(text("choose_limits() was given ", gradients.size(), " gradients and ", ready_s.size(),
                          " ready times: give one for each."));
  }
  const auto all = candidates(gradients, ready_s, link, alone_bytes);
  double earliest = std::numeric_limits<double>::infinity();
  for (const auto& candidate : all) earliest = std::min(earliest, candidate.finish);
  const Candidate* best = nullptr;
  for (const auto& candidate : all) {
    if (candidate.finish > earliest * (1 + kTie)) continue;
    if (best == nullptr || candidate.buckets < best->buckets) best = &candidate;
  }
  return best->limits;
}

LinkCost fit_link(const std::vector<ReductionTime>& times) {
  require_usable(times);
  double weights = 0, mean_bytes = 0, mean_seconds = 0;
  const auto points = weighted(times);
  for (const auto& point : points) {
    weights += point.weight;
    mean_bytes += point.weight * point.bytes;
    mean_seconds += point.weight * point.seconds;
  }
  mean_bytes /= weights;
  mean_seconds /= weights;
  double spread = 0, growth = 0, squares = 0, products = 0;
  for (const auto& [bytes, seconds, weight] : points) {
    spread += weight * (bytes - mean_bytes) * (bytes - mean_bytes);
    growth += weight * (bytes - mean_bytes) * (seconds - mean_seconds);
    squares += weight * bytes * bytes;
    products += weight * bytes * seconds;
  }
  double seconds_per_byte = growth / spread;
  double latency = mean_seconds - seconds_per_byte * mean_bytes;
  // If the latency or the slope of the best line is negative, the best valid line has 0 there.
  if (latency < 0) {
    latency = 0;
    seconds_per_byte = products / squares;
  } else if (seconds_per_byte < 0) {
    seconds_per_byte = 0;
    latency = mean_seconds;
  }
  return {.latency_s = std::max(latency, kMinLatency),
          .bytes_per_s = 1 / std::max(seconds_per_byte, kMinSecondsPerByte)};
}

}  // namespace libtrain::detail
