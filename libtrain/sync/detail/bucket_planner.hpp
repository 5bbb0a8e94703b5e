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

/// Plans the buckets of a module's parameters: as the user has given them, or by plan_buckets() in the order in which
/// gradients become ready, which is a guess before the first round and known after it. Members of all plans count the
/// parameters.
class BucketPlanner {
 public:
  /// `given`: names, a list a bucket, or nothing. `replans`: by the order of the first round.
  BucketPlanner(const ModuleParameters& parameters, const SynchronizerOptions& options);

  /// Throws UsageError for a given plan that does not name each trainable parameter once, or mixes dtypes in a bucket.
  void check_given() const;

  const BucketLimits& limits() const { return limits_; }

  /// For the parameters that are trainable now, from the last registered to the first.
  std::vector<Bucket> plan() const;

  /// For these parameters alone, in this order.
  std::vector<Bucket> plan(const std::vector<std::size_t>& order) const;

  /// What ranks must have in common: buckets of equal size would otherwise be averaged with each other's.
  std::vector<std::string> describe(const std::vector<Bucket>& plan) const;

  /// By the order in which rank 0's gradients have arrived, once; none where nothing is to be learnt from it. All ranks
  /// must call it.
  std::optional<std::vector<Bucket>> replan_by_arrival(const std::vector<std::size_t>& arrivals,
                                                       Communicator& communicator);

  /// Other parameters are trainable than before: the next round tells their order.
  void forget_arrivals() { has_replanned_ = false; }

  /// Chooses limits for this communicator, measured now, and the times at which gradients became ready
  /// (choose_limits()). All ranks must call it, and then have rank 0's limits. Throws UsageError where the plan was
  /// given.
  std::vector<Bucket> tune(Communicator& communicator);

 private:
  std::vector<Bucket> given_plan() const;
  std::vector<Bucket> in_order(const std::vector<std::size_t>& order) const;

  const ModuleParameters& parameters_;
  const std::vector<std::vector<std::string>> given_;
  BucketLimits limits_;
  const bool replans_;
  bool has_replanned_ = false;
};

}  // namespace libtrain::detail
