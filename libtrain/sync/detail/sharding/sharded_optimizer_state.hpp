#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <libtrain/sync/detail/sharding/sharded_bucket.hpp>
#include <libtrain/sync/detail/sharding/sharded_wire_format.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>

namespace libtrain {

/// The parameters of a ShardedOptimizer and the locations of their states.
///
/// Invariants:
/// - bucket k has the elements of the synchronizer's bucket k at the same positions, for all of its buckets of the plan
///   that was laid out last; after them there are buckets of parameters that it does not have: frozen ones with state
///   from earlier steps, and those unfrozen in this round, whose gradients it has averaged separately;
/// - every parameter that has been stepped is in a bucket;
/// - step counts and the layout are the same on all ranks.
struct ShardedOptimizer::State {
  State(const torch::nn::Module& module, const ShardedRule& rule, ShardedOptimizerOptions options);

  struct Parameter {
    std::string name;
    at::Tensor tensor;
    ShardedRule rule;
    std::int64_t steps = 0;
    std::optional<std::size_t> bucket = {};
    std::size_t member = 0;
    at::Tensor copied_gradient = {};  ///< its values are in own_gradients() of the bucket

    /// A gradient to step with.
    bool has_gradient() const { return tensor.requires_grad() && tensor.grad().defined(); }
  };

  // The layout (sharded_optimizer_state.cpp).
  void prepare();
  bool is_laid_out() const;
  void lay_out();
  std::vector<detail::ShardMember> members_of(const BucketView& view) const;
  std::vector<detail::ShardMember> members_of(const std::vector<std::size_t>& indices) const;
  void add_bucket(std::vector<detail::ShardMember> members, const detail::ShardLayout& layout, at::ScalarType type);
  void add_unplanned();
  void copy_gradients(detail::ShardedBucket& bucket);
  void carry_over(const std::vector<detail::ShardedBucket>& former);
  std::size_t index_of(const std::string& name) const;
  bool is_planned(const Parameter& parameter) const;

  // Steps (sharded_optimizer.cpp).
  void require_averages() const;
  bool has_gradients(const detail::ShardedBucket& bucket) const;
  const at::Tensor& gradients_of(std::size_t bucket) const;
  void update(std::size_t bucket);
  void wait_for_parameters();
  double own_squares() const;
  bool is_on_device() const;
  double clip_on_device(double max_norm) const;
  double sum_over_ranks(double value, std::string_view caller) const;
  std::vector<at::Tensor> gradient_shards();

  // Checkpoints (sharded_state_dict.cpp).
  bool has_state(const detail::ShardedBucket& bucket) const;
  StateDict gather_state(const std::vector<int>& rank_of);  // of each parameter
  std::vector<int> evenly_over_ranks() const;
  std::string misfit_of(const StateDict& given) const;
  void take_state(const StateDict& given);

  const ShardedOptimizerOptions options;
  std::shared_ptr<detail::ShardedWireFormat> format;
  std::vector<Parameter> parameters;  // in the order of registration
  std::unordered_map<std::string, std::size_t> indices;
  std::vector<std::string> state_names;  // of each parameter's state
  std::vector<detail::ShardedBucket> buckets;
  std::int64_t plans = 0;          // of the wire format, when buckets were laid out
  std::vector<at::Tensor> shards;  // this rank's parts of the buckets, for LossScaler
  std::vector<Work> gathers;       // of parameters, pending
  double learning_rate_factor = 1;
};

}  // namespace libtrain
