#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/sync/detail/sharding/scattered_bucket.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// The gradients for a ShardedOptimizer: each rank gets the average of its part. Passes to the optimizer the
/// synchronizer's buckets, and mistakes that are detected when a round begins.
class ShardedWireFormat final : public WireFormat {
 public:
  /// `rules` describes the optimizer's updates, which must be equal on all ranks.
  explicit ShardedWireFormat(std::string rules) : rules_(std::move(rules)) {}

  std::string name() const override { return "sharded"; }
  std::string signature() const override { return "sharded, " + rules_; }
  bool may_overflow() const override { return false; }
  void plan(const std::vector<BucketView>& buckets, Communicator& communicator) override;
  std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) override;

  /// The synchronizer's communicator. Throws UsageError if there is no synchronizer yet.
  Communicator& communicator() const;

  /// The buckets of the last plan.
  const std::vector<std::shared_ptr<ScatteredBucket>>& buckets() const { return buckets_; }

  /// How often plan() has been called.
  std::int64_t plans() const { return plans_; }

  /// While parameters are being gathered, no round may begin.
  void set_gathering(bool is_gathering) { is_gathering_ = is_gathering; }

  /// Throws UsageError, once, for a round that began at a wrong time.
  void require_right_rounds();

 private:
  const std::string rules_;
  Communicator* communicator_ = nullptr;
  std::vector<std::shared_ptr<ScatteredBucket>> buckets_;
  std::int64_t plans_ = 0;
  bool is_gathering_ = false;
  std::string mistake_;
};

}  // namespace libtrain::detail
