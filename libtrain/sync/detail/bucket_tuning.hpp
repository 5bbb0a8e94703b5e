#pragma once

#include <cstddef>
#include <vector>

#include <libtrain/sync/bucket_plan.hpp>

namespace libtrain::detail {

/// The duration of one reduction is `latency_s` + bytes / `bytes_per_s`.
struct LinkCost {
  double latency_s = 0;
  double bytes_per_s = 1;
};

/// The measured duration of one reduction.
struct ReductionTime {
  std::size_t bytes = 0;
  double seconds = 0;
};

/// When the last bucket is averaged, in seconds since backward() began, if buckets are reduced one after another in
/// their order, each when all its gradients are ready:
///
///     end(k) = max(ready(k), end(k - 1)) + latency + bytes(k) / bandwidth,   ready(k) = max over its gradients
///
/// (the model of MG-WFBP, Shi et al. 2019). `ready_s` has one entry for each gradient; the buckets' members are indices
/// into it. 0 without buckets. Throws UsageError for a member without a ready time, for a ready time that is negative
/// or not finite, and for a link without bandwidth or with a negative latency.
double predict_finish(const std::vector<Bucket>& buckets, const std::vector<double>& ready_s, const LinkCost& link);

/// The limits with the earliest predicted finish of plan_buckets(gradients, limits), among powers of two from 64 KiB to
/// 256 MiB for both, the first bucket's not above the others'; of those within a thousandth of it, which is below the
/// accuracy of measured times, the limits with the fewest buckets, then the smallest. A pure function: equal input
/// gives equal limits, on every rank. `alone_bytes` is not changed. `ready_s` is in the order of `gradients`. Throws
/// UsageError if the two differ in length, and as predict_finish() does.
BucketLimits choose_limits(const std::vector<GradientSpec>& gradients, const std::vector<double>& ready_s,
                           const LinkCost& link, std::size_t alone_bytes = BucketLimits::kNever);

/// Least squares of the relative errors, so that small sizes count as much as large ones, over latencies and bandwidths
/// that a link can have: at least 100 ns, and at most 10 TB/s if times do not grow with size. Throws UsageError for
/// fewer than two sizes and for a time that is negative or not finite.
LinkCost fit_link(const std::vector<ReductionTime>& times);

}  // namespace libtrain::detail
