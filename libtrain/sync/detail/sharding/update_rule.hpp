#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/sync/detail/sharding/shard_layout.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>

namespace libtrain::detail {

/// The flat memory of one bucket that a step reads and writes.
struct ShardMemory {
  const at::Tensor& parameters;           ///< [elements of the bucket]
  const at::Tensor& gradients;            ///< the same
  const std::vector<at::Tensor>& states;  ///< each [elements of the rank's state], in the order of state_names()
};

/// Throws UsageError for a rule that is out of range, or of another kind than `common`, and names the parameter.
void require_rule(const ShardedRule& rule, const ShardedRule& common, const std::string& parameter);

/// "AdamW with lr 0.001, betas 0.9 and 0.999, eps 1e-08, weight decay 0.01"
std::string describe(const ShardedRule& rule);

/// The names of a parameter's state under this rule, as in torch's own state: "exp_avg" and "exp_avg_sq",
/// "momentum_buffer", or none.
std::vector<std::string> state_names(const ShardedRule& rule);

double learning_rate(const ShardedRule& rule);
void set_learning_rate(ShardedRule& rule, double rate);

/// Updates the elements of runs, each of one parameter, in those parameters' step-th step (counted from 1), with the
/// rule's learning rate times `rate_factor`. On a device with one operation for all of them.
void update_runs(const ShardedRule& rule, double rate_factor, std::int64_t step, const ShardMemory& memory,
                 const std::vector<OwnedRun>& runs);

}  // namespace libtrain::detail
