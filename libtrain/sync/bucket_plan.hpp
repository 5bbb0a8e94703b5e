#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include <libtrain/numeric/data_type.hpp>

namespace libtrain {

/// The size and dtype of one gradient.
struct GradientSpec {
  std::size_t elements = 0;
  DataType type = DataType::float32;
};

struct BucketLimits {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  std::size_t bucket_bytes = 25 << 20;
  /// The first bucket is small, so that the reduction starts early in the backward pass.
  std::size_t first_bucket_bytes = 1 << 20;
  /// A gradient of at least so many bytes has its own bucket. A GradientSynchronizer reduces it where autograd leaves
  /// it, without a copy; with a wire format, which has its own memory for a bucket, it uses kNever instead.
  std::size_t alone_bytes = 1 << 20;
};

struct Bucket {
  DataType type = DataType::float32;
  std::size_t bytes = 0;
  std::vector<std::size_t> members;  ///< indices into the list that was planned, in its order

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// Groups gradients into buckets, each reduced as a whole. A pure function: equal input gives an equal plan on every
/// rank.
///
/// `gradients` is in the order in which they are expected to become ready. Each joins the open bucket of its dtype
/// unless that would exceed the limit in bytes; then that bucket is closed and a new one opened. A gradient larger than
/// the limit therefore has its own bucket, and so does each of `alone_bytes` or more. Buckets are in the order in which
/// they are expected to be full, that is by their last member. Gradients without elements are in a bucket, too.
std::vector<Bucket> plan_buckets(const std::vector<GradientSpec>& gradients, const BucketLimits& limits = {});

}  // namespace libtrain
