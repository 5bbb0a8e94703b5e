#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/bucket_plan.hpp>
#include <libtrain/sync/detail/module_parameters.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

namespace libtrain::detail {

/// Plans the buckets of a module's parameters: as given by the user, or by plan_buckets() in the order in which
/// gradients become ready, which is a guess before the first round and known after it. Members of all plans are indices
/// into the parameters.
class BucketPlanner {
 public:
  /// Both must outlive this object.
  BucketPlanner(const ModuleParameters& parameters, const SynchronizerOptions& options);

  /// Throws UsageError for a given plan that does not name each trainable parameter once, or mixes dtypes in a bucket.
  void check_given() const;

  const BucketLimits& limits() const { return limits_; }

  /// For the parameters that are trainable now, from the last registered to the first.
  std::vector<Bucket> plan() const;

  /// For these parameters only, in this order.
  std::vector<Bucket> plan(const std::vector<std::size_t>& order) const;

  /// The plan and options, which must be equal on all ranks: buckets of equal size would otherwise be averaged with
  /// each other.
  std::vector<std::string> describe(const std::vector<Bucket>& plan) const;

  /// A plan by the order in which rank 0's gradients have arrived, once; std::nullopt if there is nothing to learn from
  /// it. All ranks must call it.
  std::optional<std::vector<Bucket>> replan_by_arrival(const std::vector<std::size_t>& arrivals,
                                                       Communicator& communicator);

  /// For when the trainable parameters have changed: the next round shows their order.
  void forget_arrivals() { has_replanned_ = false; }

  /// Chooses limits for this communicator, measured now, and the times at which gradients became ready
  /// (choose_limits()). All ranks must call it; all get rank 0's limits. Throws UsageError if the plan was given.
  std::vector<Bucket> tune(Communicator& communicator);

 private:
  std::vector<Bucket> given_plan() const;

  const ModuleParameters& parameters_;
  const SynchronizerOptions& options_;
  BucketLimits limits_;
  bool has_replanned_ = false;
};

}  // namespace libtrain::detail
