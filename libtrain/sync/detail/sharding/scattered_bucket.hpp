#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/detail/sharding/shard_layout.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// A bucket of gradients of which each rank gets its own part of the average, and all get the rest. It is
/// reduced where it lies: one reduce-scatter, and one small all-reduce of what comes behind the parts.
///
///     idle -> reducing (start) -> averaged (finish) -> reducing (the next round) ...
///
/// In other ranks' parts a gradient then holds this rank's own numbers, which are no average. Code that reads a
/// gradient as a whole would get a wrong result without noticing: such as clipping by a norm, or the next backward()
/// where the gradient was not zeroed. Therefore finish() leaves a mark there, one element of a size that no gradient
/// has: norms are then absurd, and a mark that is found again in a new round, or changed before the step, tells of the
/// mistake.
class ScatteredBucket {
 public:
  /// Throws UsageError for a dtype that require_shardable() refuses.
  ScatteredBucket(const BucketView& view, const Communicator& communicator);

  const BucketView& view() const { return view_; }

  const ShardLayout& layout() const { return layout_; }

  /// Starts the collectives: none in a group of one rank. They must be waited for before finish().
  std::vector<Work> start(Communicator& communicator);
  void finish();

  /// Whether the gradients, about to be reduced, were added to what the round before has left: every mark is still
  /// there, perhaps weighted by samples as all gradients are.
  bool is_stale() const;

  /// Between finish() and start().
  bool is_averaged() const { return phase_ == Phase::averaged; }

  /// Whether no mark has been changed since finish().
  bool is_untouched() const;

 private:
  enum class Phase { idle, reducing, averaged };

  BucketView view_;
  ShardLayout layout_;
  at::Tensor parts_;  // all ranks'
  at::Tensor part_;   // this rank's
  at::Tensor tail_;   // the rest
  std::vector<std::int64_t> marks_;
  Phase phase_ = Phase::idle;
};

/// Throws UsageError for a parameter of another dtype than float32 and float64, in which no update is computed.
void require_shardable(const std::string& parameter, at::ScalarType type);

}  // namespace libtrain::detail
