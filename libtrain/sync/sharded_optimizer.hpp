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

/// What becomes of a parameter in a step: that of torch.optim.SGD, or of torch.optim.AdamW without amsgrad.
using ShardedRule = std::variant<torch::optim::SGDOptions, torch::optim::AdamWOptions>;

/// When the parameters that other ranks have updated arrive.
enum class ParameterGather {
  in_step,     ///< step() returns with all of them
  overlapped,  ///< step() returns before; nothing may read a parameter until wait_for_parameters() has returned
};

struct ShardedOptimizerOptions {
  ParameterGather gather = ParameterGather::in_step;
  /// The rule of the parameter of this name, made of the common one: such as one without weight decay for biases. It is
  /// asked once for each parameter, and must answer alike on all ranks, with the same kind of rule for all parameters.
  /// Null: the common rule.
  std::function<ShardedRule(const std::string& name, ShardedRule common)> rule_of = {};
};

/// SGD or AdamW whose state is divided among the ranks, so that each has the memory and the work of 1/world_size of it:
/// ZeRO stage 1 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
/// arXiv:1910.02054, section 5.1).
///
///     ShardedOptimizer optimizer{*model, torch::optim::AdamWOptions(1e-3)};
///     GradientSynchronizer synchronizer{*model, communicator, {.wire_format = optimizer.wire_format()}};
///     for (auto& batch : batches) {
///       loss(model, batch).backward();   // buckets are reduced as they fill: each rank gets its part of the average
///       synchronizer.wait();
///       optimizer.clip_gradients(1);     // or not
///       optimizer.step();                // updates this rank's part, and gathers the others'
///       synchronizer.zero_grad();
///     }
///
/// A step sends as much as without sharding: a reduce-scatter instead of an all-reduce, and an all-gather. All ranks
/// get the same bits; they are those of optim::FusedSgd and optim::FusedAdamW, given the same averages.
///
/// What is different from other optimizers:
/// - After wait() a gradient is the average in this rank's part of its bucket alone. clip_gradients() and unscale()
///   here take the place of optim::clip_gradients and LossScaler::unscale; gradients that were changed as a whole, or
///   added to those of an earlier round, are refused in step().
/// - Parameters move to memory in which they can be gathered, in the first step and whenever the synchronizer has made
///   new buckets: a raw pointer or a detached tensor taken before refers to what is left behind. Values may be changed
///   in place and loaded at any time between rounds, on all ranks alike.
/// - State follows its elements when buckets change: that sends all of it once. With `replan`, the default, this is in
///   the second step.
/// - float32 and float64 on the host. A parameter without a gradient is left alone, and so is its step count.
///
/// All ranks must call all methods in the same order, setters of rates included. Errors of this class are this rank's
/// alone unless it says otherwise: ranks that run the same program meet them alike. One thread. The module must outlive
/// this object; the synchronizer and the communicator must outlive its last call.
class ShardedOptimizer {
  struct State;

 public:
  /// Names of parameters, and of what is kept for them, with tensors of any memory: what a checkpoint holds.
  using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

  /// Calls no collective. Parameters that are made or replaced afterwards are not seen. Throws UsageError for a rule
  /// out of range.
  ShardedOptimizer(torch::nn::Module& module, const ShardedRule& rule, ShardedOptimizerOptions options = {});

  /// Waits for nothing: parameters under way still arrive.
  ~ShardedOptimizer();

  ShardedOptimizer(const ShardedOptimizer&) = delete;  // one state, one owner
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// For SynchronizerOptions::wire_format of the one synchronizer that reduces this module's gradients.
  std::shared_ptr<WireFormat> wire_format() const;

  /// Updates this rank's part of all parameters that have a gradient and require one, and gathers the others', those of
  /// the first layers first. Throws UsageError where wait() has not been called, where a gradient is not what wait()
  /// has left, and for the mistakes of a round that show only now: it was begun before wait_for_parameters(), or its
  /// gradients were added to an earlier round's.
  void step();

  /// With ParameterGather::overlapped: returns when all parameters are up to date. To be called before anything reads
  /// them, such as the next forward, an evaluation or a checkpoint. Loading data and zero_grad() read none.
  void wait_for_parameters();

  /// Scales the gradients by min(1, max_norm / (norm + 1e-6)), where `norm` is the Euclidean norm of all averaged
  /// gradients, as optim::clip_gradients does; returns the norm, the same bits on all ranks. One all-reduce of a
  /// number. Throws UsageError for a max_norm that is not above 0, and as step() does.
  double clip_gradients(double max_norm);

  /// Divides the gradients by the scaler's scale; whether they are finite, on all ranks. Where they are not, the scaler
  /// has been told, and the step is to be left out:
  ///
  ///     scaler.scale(loss).backward();
  ///     if (!synchronizer.wait()) scaler.report_overflow();   // can be, with NonFinite::skipped
  ///     if (optimizer.unscale(scaler)) optimizer.step();      // perhaps with clip_gradients() in between
  ///     scaler.update();
  ///     synchronizer.zero_grad();
  ///
  /// One all-reduce of a number. Throws UsageError as LossScaler::unscale and step() do.
  bool unscale(optim::LossScaler& scaler);

  /// Gives all parameters this learning rate, times the factor below. Throws UsageError for less than 0.
  void set_learning_rate(double rate);

  /// Multiplies all learning rates by `factor`, in the place of the factor before: what an optim::Schedule returns.
  ///
  ///     optimizer.set_learning_rate_factor(schedule(step));
  ///
  /// Throws UsageError for less than 0.
  void set_learning_rate_factor(double factor);

  /// The whole state: "fc.weight.exp_avg", "fc.weight.exp_avg_sq" or "fc.weight.momentum_buffer", of the parameter's
  /// shape and dtype, and "fc.weight.step", int64; of parameters that have been stepped, in the order in which they are
  /// registered. On rank 0; empty on all others, which need memory for one bucket's state meanwhile. Rates and other
  /// options are not part of it. Waits for parameters, too.
  StateDict state_dict();

  /// Goes on from rank 0's `state`, which a job of any world size may have written; what other ranks give is not looked
  /// at. After the synchronizer has been made. Throws UsageError, the same on all ranks, for names, shapes or step
  /// counts that do not belong to this module and rule; then nothing has changed.
  void load_state_dict(const StateDict& state);

  /// Bytes of state that this rank holds: 1/world_size of it, and up to world_size - 1 elements a bucket that all ranks
  /// hold. 0 before the first step.
  std::size_t state_bytes() const;

 private:
  const std::unique_ptr<State> state_;
};

}  // namespace libtrain
