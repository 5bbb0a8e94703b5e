#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/optim/device_value.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/optim/moving_average.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>

namespace libtrain {

class Checkpoint;
class SyncBatchNormImpl;

namespace detail {
class TrainingLoop;
}

/// An optimizer that a Trainer uses, which must outlive it.
using TrainerOptimizer =
    std::variant<std::reference_wrapper<torch::optim::Optimizer>, std::reference_wrapper<ShardedOptimizer>>;

/// A module of a Trainer with what trains it: synchronizer, optimizer and moving average.
class TrainerPart {
 public:
  struct Options {
    std::optional<double> max_gradient_norm = {};
    std::optional<optim::LossScalerOptions> loss_scaler = {};
    std::optional<optim::MovingAverageOptions> moving_average = {};
    SynchronizerOptions synchronizer = {};
  };

  /// For Trainer::add(). All ranks must call it. The arguments must outlive this object.
  TrainerPart(std::string name, torch::nn::Module& module, TrainerOptimizer optimizer, Communicator& communicator,
              const Options& options);

  /// Computes the gradients of `loss`, a scalar, for this part's parameters and no others, averages them over all
  /// ranks, clips them, and steps. For a trainer's step that trains modules by different losses, such as a GAN's: call
  /// it there, on all ranks equally often. While the trainer accumulates batches, only the last one of a step does more
  /// than to add gradients, so that each batch must call it, and once. Throws UsageError for a call outside of a step,
  /// and for a second one in a step of several batches or in which ranks have different numbers of samples; and as
  /// GradientSynchronizer::wait().
  void update(const at::Tensor& loss);

  const std::string& name() const { return name_; }
  torch::nn::Module& module() const { return module_; }
  GradientSynchronizer& synchronizer() { return synchronizer_; }

  /// Null without TrainerOptions::moving_average.
  optim::MovingAverage* moving_average() { return average_ ? &*average_ : nullptr; }

 private:
  friend class detail::TrainingLoop;

  /// What the present batch is in its step.
  struct Batch {
    bool is_alone = true;      ///< in its step
    double divisor = 1;        ///< of its loss, so that a step's losses add up to the mean over its samples
    bool is_last = true;       ///< of the step
    std::int64_t uneven = -1;  ///< samples of this rank in the step, if ranks have different numbers of them
    /// Those of all parts, if `uneven` is given and there are several: the loss of one may depend on another, whose
    /// synchronizer weighs samples in its own rounds only.
    std::vector<SyncBatchNormImpl*> batch_norms = {};
    TraceSink* trace = nullptr;  ///< may be null
  };

  void begin_step() { has_skipped_ = false; }
  void begin_batch(const Batch& batch);
  bool end_batch();
  static void update_together(const at::Tensor& loss, const std::vector<TrainerPart*>& parts, const Batch& batch,
                              const std::vector<at::Tensor>& inputs = {});
  static void backward(const at::Tensor& loss, const std::vector<TrainerPart*>& parts, const Batch& batch,
                       const std::vector<at::Tensor>& inputs);
  void step_without_samples();
  void step(bool has_gradients, optim::LossScaler* scaler);
  void settle();

  bool is_sharded() const { return plain_optimizer() == nullptr; }
  bool is_in_round() const { return is_in_round_; }
  bool has_skipped() const { return has_skipped_; }
  void broadcast_buffers();
  void restart_average();

  torch::optim::Optimizer* plain_optimizer() const;
  ShardedOptimizer* sharded_optimizer() const;
  std::vector<double> learning_rates() const;
  std::vector<double> rates() const;
  void set_rates(std::vector<double> rates);
  void set_rate_factor(double factor);
  double gradient_norm() const { return gradient_norm_; }
  void add_to(Checkpoint& checkpoint);

  const std::string name_;
  torch::nn::Module& module_;
  const TrainerOptimizer optimizer_;
  Communicator& communicator_;
  std::optional<optim::LossScaler> scaler_;
  const Options options_;
  GradientSynchronizer synchronizer_;
  std::optional<optim::MovingAverage> average_;
  std::optional<Batch> batch_;             // while the trainer's step runs
  bool was_updated_ = false;               // by this batch
  bool is_in_round_ = false;               // gradients have been added, and not been averaged yet
  bool has_skipped_ = false;               // a round of this step
  optim::DeviceValue gradient_norm_{0.0};  // before clipping, of the last update
};

}  // namespace libtrain
