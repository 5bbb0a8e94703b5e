#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/sync/detail/sharding/scattered_bucket.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// Gradients as ShardedOptimizer wants them: averaged, each rank its part. It tells the optimizer of the synchronizer's
/// buckets, and of mistakes that show when a round begins.
class ShardedWireFormat final : public WireFormat {
 public:
  /// `rules`: what the optimizer does to the parameters, which all ranks must have in common.
  explicit ShardedWireFormat(std::string rules) : rules_(std::move(rules)) {}

  std::string name() const override { return "sharded"; }
  std::string signature() const override { return "sharded, " + rules_; }
  bool may_overflow() const override { return false; }
  void plan(const std::vector<BucketView>& buckets, Communicator& communicator) override;
  std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) override;

  /// The synchronizer's. Throws UsageError where there is no synchronizer yet.
  Communicator& communicator() const;

  /// Of the last plan.
  const std::vector<std::shared_ptr<ScatteredBucket>>& buckets() const { return buckets_; }

  /// How often plan() has been called.
  std::int64_t plans() const { return plans_; }

  /// From now on no round may begin, since parameters are under way; until parameters_have_come().
  void parameters_are_coming() { parameters_are_coming_ = true; }
  void parameters_have_come() { parameters_are_coming_ = false; }

  /// Throws UsageError, once, for a round that has begun when it must not.
  void require_right_rounds();

 private:
  const std::string rules_;
  Communicator* communicator_ = nullptr;
  std::vector<std::shared_ptr<ScatteredBucket>> buckets_;
  std::int64_t plans_ = 0;
  bool parameters_are_coming_ = false;
  std::string mistake_;
};

}  // namespace libtrain::detail
