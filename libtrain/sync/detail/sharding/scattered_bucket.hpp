#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/detail/host_copy.hpp>
#include <libtrain/sync/detail/sharding/shard_layout.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// What mark_averaged() writes. Adding a gradient does not change its bits.
inline constexpr double kForeignMark = 0x1p120;

/// A bucket of gradients of which each rank gets the average of its own part, and all ranks get the rest. It is reduced
/// in place: one reduce-scatter of the parts, and one small all-reduce of the rest.
///
///     idle -> reducing (start) -> averaged (mark_averaged) -> reducing (the next round) ...
///
/// In other ranks' parts a gradient then has this rank's own values, which are not an average. Code that reads whole
/// gradients would silently get a wrong result, such as clipping by a norm, or the next backward() if the gradient was
/// not zeroed. Therefore mark_averaged() writes a mark there, one element that is larger than any gradient: norms are
/// then absurd, and a mark that is still there in a new round, or has changed before the step, shows the mistake.
///
/// On a device, the marks are copied to the host, which looks at them one step later: no step waits for the device.
class ScatteredBucket {
 public:
  /// Throws UsageError for a dtype that require_shardable() refuses.
  ScatteredBucket(const BucketView& view, const Communicator& communicator);

  const BucketView& view() const { return view_; }

  const ShardLayout& layout() const { return layout_; }

  /// Starts the collectives: none in a group of one rank. They must be waited for before mark_averaged().
  std::vector<Work> start(Communicator& communicator);
  void mark_averaged();

  /// To be called before start(): whether the gradients that are about to be reduced were added to those of the round
  /// before: every mark is still there, perhaps weighted by samples like all gradients, or in the first round of a plan
  /// one of the plan before. On a device: whether those of the last call were.
  bool is_stale();

  /// Between mark_averaged() and start().
  bool is_averaged() const { return phase_ == Phase::averaged; }

  /// Whether no mark has been changed since mark_averaged(). On a device: whether none had been at the last call.
  bool is_untouched();

 private:
  enum class Phase { idle, reducing, averaged };

  bool has_marks_of_former_plan();
  std::optional<std::vector<double>> read_marks(std::optional<HostCopy>& former) const;

  BucketView view_;
  ShardLayout layout_;
  at::Tensor parts_;  // all ranks'
  at::Tensor part_;   // this rank's
  at::Tensor tail_;   // the rest
  std::vector<std::int64_t> marks_;
  at::Tensor mark_indices_;               // the same, on the device; undefined on the host
  std::optional<HostCopy> begun_with_;    // the marks when a round began, on a device
  std::optional<HostCopy> stepped_with_;  // the marks before a step
  Phase phase_ = Phase::idle;
};

/// Throws UsageError for a parameter of another dtype than float32 and float64, the only ones with an update.
void require_shardable(const std::string& parameter, at::ScalarType type);

}  // namespace libtrain::detail
