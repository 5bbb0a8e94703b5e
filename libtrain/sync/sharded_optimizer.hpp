#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <libtrain/sync/wire_format.hpp>

namespace libtrain {

namespace optim {
class LossScaler;
}

/// The update of a parameter in a step: that of torch.optim.SGD, or of torch.optim.AdamW without amsgrad.
using ShardedRule = std::variant<torch::optim::SGDOptions, torch::optim::AdamWOptions>;

/// When the parameters that other ranks have updated arrive.
enum class ParameterGather {
  in_step,     ///< before step() returns
  overlapped,  ///< after step() returns; no code may read a parameter until wait_for_parameters() has returned
};

struct ShardedOptimizerOptions {
  ParameterGather gather = ParameterGather::in_step;
  /// Returns the rule of the parameter of this name, derived from the common one: for example without weight decay for
  /// biases. It is called once for each parameter, and must return the same on all ranks, and the same kind of rule for
  /// all parameters. Null: the common rule.
  std::function<ShardedRule(const std::string& name, ShardedRule common)> rule_of = {};
};

/// SGD or AdamW whose state is divided among the ranks, so that each rank needs 1/world_size of its memory and work:
/// ZeRO stage 1 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
/// arXiv:1910.02054, section 5.1).
///
///     ShardedOptimizer optimizer{*model, torch::optim::AdamWOptions(1e-3)};
///     GradientSynchronizer synchronizer{*model, communicator, {.wire_format = optimizer.wire_format()}};
///     for (auto& batch : batches) {
///       loss(model, batch).backward();   // buckets are reduced as they fill: each rank gets its part of the average
///       synchronizer.wait();
///       optimizer.clip_gradients(1);     // optional
///       optimizer.step();                // updates this rank's part, and gathers the others'
///       synchronizer.zero_grad();
///     }
///
/// A step sends as much as without sharding: a reduce-scatter instead of an all-reduce, and an all-gather. All ranks
/// get the same bits; they are those of optim::FusedSgd and optim::FusedAdamW with the same averages.
///
/// Differences from other optimizers:
/// - After wait() a gradient is the average in this rank's part of its bucket only. Use clip_gradients() and unscale()
///   of this class instead of optim::clip_gradients and LossScaler::unscale; step() refuses gradients that were changed
///   as a whole, or added to those of an earlier round.
/// - Parameters move to memory in which they can be gathered, in the first step and whenever the synchronizer has new
///   buckets: a raw pointer or a detached tensor from before refers to the old memory. Values may be changed in place
///   and loaded at any time between rounds, on all ranks equally.
/// - State follows its elements when buckets change: all of it is sent once. With `replan`, the default, this is in the
///   second step.
/// - float32 and float64. A parameter without a gradient is not changed, and neither is its step count.
/// - On a device, misuse of gradients is detected one step later, so that a step waits at most for the end of the one
///   before it; the bits are those of LibTorch's fused kernels.
///
/// All ranks must call all methods in the same order, including setters of rates. Errors of this class are of this rank
/// only unless documented otherwise: ranks that run the same program get the same errors. Not thread-safe. The module
/// must outlive this object; the synchronizer and the communicator must outlive its last call.
class ShardedOptimizer {
  struct State;

 public:
  /// Names of parameters and of their state, with tensors in any memory: the content of a checkpoint.
  using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

  /// Calls no collective. Parameters that are created or replaced afterwards are ignored. Throws UsageError for a rule
  /// out of range.
  ShardedOptimizer(torch::nn::Module& module, const ShardedRule& rule, ShardedOptimizerOptions options = {});

  /// Does not wait: pending parameters still arrive.
  ~ShardedOptimizer();

  ShardedOptimizer(const ShardedOptimizer&) = delete;  // one state, one owner
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// For SynchronizerOptions::wire_format of the one synchronizer that reduces this module's gradients.
  std::shared_ptr<WireFormat> wire_format() const;

  /// Updates this rank's part of all parameters that have a gradient and require one, and gathers the other parts,
  /// those of the first layers first. Throws UsageError if wait() has not been called, if a gradient is not the tensor
  /// that wait() has left, if the round began before wait_for_parameters(), and if its gradients were added to an
  /// earlier round's.
  void step();

  /// With ParameterGather::overlapped: returns when all parameters are up to date. Call it before any code reads them,
  /// such as the next forward pass, an evaluation or a checkpoint. Loading data and zero_grad() do not read parameters.
  void wait_for_parameters();

  /// Scales the gradients by min(1, max_norm / (norm + 1e-6)), where `norm` is the Euclidean norm of all averaged
  /// gradients, as optim::clip_gradients does; returns the norm, the same bits on all ranks. One all-reduce of a
  /// number. Throws UsageError for a max_norm that is not above 0, and as step() does.
  double clip_gradients(double max_norm);

  /// Divides the gradients by the scaler's scale; returns whether they are finite, on all ranks. If they are not, it
  /// has called report_overflow() of the scaler, and the step must be skipped:
  ///
  ///     scaler.scale(loss).backward();
  ///     if (!synchronizer.wait()) scaler.report_overflow();   // with NonFinite::skipped
  ///     if (optimizer.unscale(scaler)) optimizer.step();      // perhaps with clip_gradients() in between
  ///     scaler.update();
  ///     synchronizer.zero_grad();
  ///
  /// One all-reduce of a number. Throws UsageError as LossScaler::unscale and step() do.
  bool unscale(optim::LossScaler& scaler);

  /// Sets the learning rate of all parameters, without the factor below. Throws UsageError for less than 0.
  void set_learning_rate(double rate);

  /// Sets the factor by which all learning rates are multiplied, such as an optim::Schedule returns.
  ///
  ///     optimizer.set_learning_rate_factor(schedule(step));
  ///
  /// Throws UsageError for less than 0.
  void set_learning_rate_factor(double factor);

  struct LearningRates {
    std::vector<double> of_parameters = {};  ///< in the order of registration, without the factor
    double factor = 1;
  };

  /// What the two methods above set, for a program that stores it and sets it again.
  LearningRates learning_rates() const;

  /// Throws UsageError for a number less than 0, and for rates of another number of parameters.
  void set_learning_rates(const LearningRates& rates);

  /// The whole state: "fc.weight.exp_avg", "fc.weight.exp_avg_sq" or "fc.weight.momentum_buffer", of the parameter's
  /// shape and dtype, and "fc.weight.step", int64, for parameters that have been stepped, in the order of registration.
  /// On rank 0; empty on all others, which need memory for one bucket's state meanwhile. Rates and other options are
  /// not included: see learning_rates(). Waits for parameters, too.
  StateDict state_dict();

  /// As state_dict(), but the state of each parameter is on one rank, so that all ranks can store the whole together.
  /// The ranks have about equally many elements.
  StateDict shard_of_state_dict();

  /// Continues from rank 0's `state`, written by a job of any world size; that of other ranks is ignored. Call it after
  /// the synchronizer has been created. Throws UsageError, the same on all ranks, and changes nothing, for names,
  /// shapes or step counts that do not belong to this module and rule.
  void load_state_dict(const StateDict& state);

  /// Bytes of state on this rank: 1/world_size of the whole, and up to world_size - 1 elements of each bucket, which
  /// all ranks have. 0 before the first step or load_state_dict().
  std::size_t state_bytes() const;

 private:
  const std::unique_ptr<State> state_;
};

}  // namespace libtrain
