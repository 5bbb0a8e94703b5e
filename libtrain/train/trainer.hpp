#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/checkpoint/checkpoint_retention.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/observe/tracker.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/optim/moving_average.hpp>
#include <libtrain/optim/schedule.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/module_ref.hpp>
#include <libtrain/train/checkpoint.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/evaluate.hpp>
#include <libtrain/train/trainer_part.hpp>

namespace libtrain {

/// In which type forward passes compute; weights, gradients and the optimizer's state are float32 in any case.
enum class Precision {
  float32,
  bfloat16,  ///< Autocast
  float16,   ///< Autocast and an optim::LossScaler
};

/// How long a training is, for a schedule of the learning rate.
struct TrainingLength {
  std::int64_t epochs = 0;           ///< TrainerOptions::epochs
  std::int64_t steps = 0;            ///< of all epochs, or TrainerOptions::max_steps if that is less
  std::int64_t steps_per_epoch = 0;  ///< of the first epoch: with batches by tokens others may have a few more or less
};

/// When a Trainer writes checkpoints, to DIR/`folder`, where DIR is `--output`, and which are kept. Besides, it writes
/// one when it is asked to stop, when the metric is the best so far, and at the end.
struct TrainerCheckpoints {
  bool enabled = true;            ///< false: nothing is saved or resumed, and signals end the process
  std::int64_t every_epochs = 1;  ///< 0: never at the end of an epoch
  std::int64_t every_steps = 0;   ///< 0: never within an epoch
  std::optional<int> last = 3;    ///< the newest ones that are kept; std::nullopt: all
  std::string metric = {};        ///< one of the evaluation's values, whose best checkpoint is kept, too
  CheckpointRetention::Best best = CheckpointRetention::Best::lowest;
  int failures_allowed = 2;            ///< see CheckpointOptions
  std::string folder = "checkpoints";  ///< another name for a second trainer in the same run
};

struct TrainerOptions {
  std::int64_t epochs = 1;      ///< 0: as many as `max_steps` needs
  std::int64_t max_steps = 0;   ///< the training ends after so many steps, even within an epoch; 0: no limit
  std::int64_t accumulate = 1;  ///< batches in a step
  Precision precision = Precision::float32;
  std::optional<double> max_gradient_norm = {};  ///< gradients are clipped to it (optim::clip_gradients)
  /// The factor of the learning rates that the optimizers have when fit() begins; empty: they are left alone.
  std::function<optim::Schedule(const TrainingLength&)> schedule = {};
  std::optional<optim::MovingAverageOptions> moving_average = {};  ///< of the weights; evaluations use the average
  bool channels_last = false;                                      ///< to_channels_last(), for GPUs
  bool sync_batch_norm = false;                                    ///< replace_batch_norms()
  optim::LossScalerOptions loss_scaler = {};                       ///< for Precision::float16
  /// `trace` is set, and `wire_format` if the optimizer is sharded. A trainer of several parts has no other format.
  SynchronizerOptions synchronizer = {};
  TrainerCheckpoints checkpoints = {};
  std::int64_t evaluate_every_epochs = 1;  ///< 0: only at the end
  std::int64_t evaluate_every_steps = 0;   ///< 0: never within an epoch
  /// Ends the training when so many evaluations in a row have not improved TrainerCheckpoints::metric; 0:
  /// never.
  int evaluations_without_improvement = 0;
  std::int64_t log_every_steps = 10;  ///< steps between records: values of a record are means over these steps
  bool tensor_board = true;           ///< event files in DIR/logs, in ./logs in a job of Azure ML
  bool mlflow = true;                 ///< a run on the server of MLFLOW_TRACKING_URI, if that is set
};

/// What a trainer's step returns: the mean loss of the batch, or a loss and further values to be shown.
struct StepResult {
  StepResult(at::Tensor the_loss, std::vector<std::pair<std::string, at::Tensor>> the_metrics = {})  // NOLINT
      : loss(std::move(the_loss)), metrics(std::move(the_metrics)) {}

  /// For a step that has called TrainerPart::update() itself: there is no loss to minimise.
  static StepResult updated(std::vector<std::pair<std::string, at::Tensor>> metrics) {
    return {at::Tensor{}, std::move(metrics)};
  }

  at::Tensor loss;                                          ///< a scalar on any device
  std::vector<std::pair<std::string, at::Tensor>> metrics;  ///< scalars: means over the batch
};

/// Where a training is.
struct TrainingState {
  std::int64_t step = 0;                          ///< steps that were made
  std::int64_t epoch = 0;                         ///< epochs that were finished
  std::int64_t samples = 0;                       ///< that all ranks have used
  std::map<std::string, double> metrics = {};     ///< of the last `step` or `epoch` record, such as "loss"
  std::map<std::string, double> evaluation = {};  ///< values of the last evaluation
};

namespace detail {

class TrainingLoop;

/// The batches of a loader and a program's step, without their types.
class TrainerSteps {
 public:
  virtual ~TrainerSteps() = default;
  virtual const data::Sampler& sampler() const = 0;
  virtual data::LoaderStatistics statistics() const = 0;
  virtual void begin_epoch(std::uint64_t epoch) = 0;
  virtual void resume(const data::LoaderState& state) = 0;
  virtual void end_epoch() = 0;
  virtual void next_batch() = 0;  ///< there must be one
  virtual StepResult run() = 0;
  virtual data::LoaderState state() const = 0;
};

template <typename B, typename Step>
class TrainerStepsOf final : public TrainerSteps {
 public:
  TrainerStepsOf(data::DataLoaderOf<B>& loader, Step& step) : loader_(loader), step_(step) {}

  const data::Sampler& sampler() const override { return loader_.sampler(); }
  data::LoaderStatistics statistics() const override { return loader_.statistics(); }
  void begin_epoch(std::uint64_t epoch) override { epoch_.emplace(loader_.epoch(epoch)); }
  void resume(const data::LoaderState& state) override { epoch_.emplace(loader_.resume(state)); }
  void end_epoch() override {
    batch_.reset();
    epoch_.reset();
  }
  void next_batch() override {
    batch_.reset();  // first, so that the loader can reuse its memory
    batch_ = epoch_->next();
  }
  StepResult run() override { return step_(*batch_); }
  data::LoaderState state() const override { return epoch_->state(); }

 private:
  data::DataLoaderOf<B>& loader_;
  Step& step_;
  std::optional<data::LoaderEpochOf<B>> epoch_;
  std::optional<B> batch_;
};

}  // namespace detail

/// Trains modules for a number of epochs, with evaluations, checkpoints, resuming, stopping, tracking and progress.
///
///     auto model = lt::models::resnet50({.classes = 1000});
///     torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
///     lt::Trainer trainer{context, model, sgd, {.epochs = 90}};
///     trainer.evaluate_with(held_out, {"accuracy"}, [&](const lt::data::Batch& batch) {
///       return model->forward(batch.images).argmax(1).eq(batch.labels);
///     });
///     trainer.fit(loader, [&](const lt::data::Batch& batch) {
///       return torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
///     });
///
/// It is made of public parts (GradientSynchronizer, Checkpoint, evaluate(), Trackers, ...), and a loop by hand with
/// the same parts gives the same bits.
///
/// Resuming: fit() continues the run in `--output` if there is one that is not finished, and ends as if the run had
/// never stopped (`--resume auto`). If that run had finished, nothing is trained: fit() loads its last checkpoint, and
/// returns after a warning. If it had another configuration (options of the command line, and those of this class that
/// docs/training.md lists), fit() throws UsageError with the differences. `--resume none` starts anew, `--resume PATH`
/// from any checkpoint; other checkpoints in `--output` are kept in a folder of another name.
///
/// At another number of ranks the order of the samples is the same, and a schedule goes on at the same place in the
/// data, or, if the training ends by `max_steps`, at the same step, with the steps of an epoch that the run began with.
/// Without a schedule, rates that the program has set are restored, in proportion to those before fit().
///
/// Stopping: if a rank gets SIGTERM or SIGUSR1, or `--max-minutes` have passed, all ranks stop after the same step,
/// write a checkpoint, and fit() throws StoppedOnRequest: `run` returns 5. An evaluation is cut short, and repeated
/// when the run continues. After fit() a signal ends the process at once again.
///
/// Records, in metrics.jsonl and all trackers: `step` every log_every_steps with "loss" and the step's other metrics
/// (means over samples, steps and ranks), "learning_rate" of the first group or parameter,
/// "gradient_norm" if it is clipped, "samples_per_s", the shares of the time in which the loop waited,
/// "data_wait_share" and "communication_share", and "epoch"; `epoch` with the means over the epoch; `evaluation`; in
/// metrics.jsonl also `alert`, see alerts.hpp. With values on a GPU the host waits for them once for each record. The
/// loss of a step that NonFinite::skipped has skipped does not count.
///
/// Replicas: the configuration of all ranks must be the same, and replicas are compared in each round, before each
/// evaluation and at the end, as SynchronizerOptions::replicas says.
///
/// All ranks must call all methods, in the same order. Modules, optimizers, loaders and the context must outlive the
/// trainer. Belongs to the thread of the program's body.
class Trainer {
 public:
  /// One module and its optimizer: add("model", module, optimizer).
  Trainer(Context& context, ModuleRef module, TrainerOptimizer optimizer, TrainerOptions options = {});

  /// Modules are added by add(). Throws UsageError for options out of range.
  explicit Trainer(Context& context, TrainerOptions options = {});

  ~Trainer();
  Trainer(const Trainer&) = delete;  // its parts refer to it
  Trainer& operator=(const Trainer&) = delete;

  /// Moves the module to the context's device, makes all replicas equal, and adds it to the checkpoints, as `name`,
  /// `name`-optimizer, and so on; see Checkpoint::add() for names. Throws as GradientSynchronizer, and UsageError after
  /// fit().
  TrainerPart& add(const std::string& name, ModuleRef module, TrainerOptimizer optimizer);

  /// Adds a part of the program's state to the checkpoints (see Checkpointable).
  void add_state(const std::string& name, std::unique_ptr<Checkpointable> state);

  /// Evaluates all samples of a loader, as evaluate() does: `measure(batch)` returns one value for each name and
  /// sample, [B] or [B, K]. Each evaluation gives the means over all samples of all ranks under these names. Several
  /// loaders may be added, with different names.
  template <typename B, typename Measure>
  void evaluate_with(data::DataLoaderOf<B>& loader, std::vector<std::string> names, Measure measure) {
    detail::require_every_sample_once(loader.sampler());  // now, not after an epoch
    add_evaluation(std::move(names), [&loader, measure = std::move(measure), this]() mutable {
      return detail::evaluate_until(loader, communicator(), measure, [this] { return must_stop_evaluation(); });
    });
  }

  /// An evaluation by a function of its own, such as for values that are not means over samples. All ranks call it, and
  /// rank 0's values count. Without gradients, and all modules in evaluation mode. It is not cut short by a stop.
  void evaluate_with(std::function<std::map<std::string, double>()> evaluate);

  /// The same for one that takes long: all ranks call `must_stop()` equally often, such as after each batch, and return
  /// std::nullopt when it is true, which it then is on all ranks. The run that continues evaluates again.
  void evaluate_with(
      std::function<std::optional<std::map<std::string, double>>(const std::function<bool()>& must_stop)> evaluate);

  /// Calls `callback` after each step, or after each epoch and its evaluation, on all ranks.
  void after_step(std::function<void(const TrainingState&)> callback);
  void after_epoch(std::function<void(const TrainingState&)> callback);

  /// Trains: `step(batch)` returns the mean loss of a batch, or a StepResult. It is called for each batch, and must not
  /// call backward() itself: see TrainerPart::update(). A rank without samples in the last step of an epoch takes part
  /// without a call of it. Modules are trained in the mode that they have. `loader` has the shard of this rank,
  /// Context::shard(), or, with a warning, data of this rank alone.
  ///
  /// Throws UsageError if the weights are not finite, before they are saved and at the end; what the parts throw;
  /// UsageError for Remainder::uneven, a loader without batches, a last batch of an epoch with fewer samples than ranks
  /// if there are several parts or a SyncBatchNorm, and a second call of this or evaluate().
  template <typename B, typename Step>
  void fit(data::DataLoaderOf<B>& loader, Step step) {
    detail::TrainerStepsOf<B, Step> steps(loader, step);
    fit(steps);
  }

  /// Instead of fit(): evaluates the modules as they are, such as with weights that the program has loaded, and without
  /// a moving average. The values are those of all ranks; they are shown, and become an `evaluation` record of step 0
  /// and part of the summary. No checkpoint is read or written, and signals end the process. Throws UsageError without
  /// evaluations, for weights that are not finite, and as fit().
  std::map<std::string, double> evaluate();

  /// For a callback: the training ends after this step or epoch, with an evaluation and a checkpoint, and the run has
  /// then finished. All ranks must call it in the same callback.
  void end_training();

  const TrainingState& state() const;

  /// A part, for its synchronizer() and moving_average(): with the latter's copy_to(), a program exports the average,
  /// since the module has the weights of the last step after fit(). Throws UsageError for a name that was not added.
  TrainerPart& part(const std::string& name = "model") const;

  /// For images, texts and artifacts, in callbacks: fit() ends the run for them when it returns. On other ranks than 0
  /// it drops everything. Throws UsageError before fit().
  Trackers& trackers();

  /// The folder of the checkpoint with the best TrainerCheckpoints::metric so far, the same on all ranks; empty if none
  /// has it. In callbacks the folder may not be written yet; after fit() it is complete.
  std::filesystem::path best_checkpoint() const;

 private:
  Communicator& communicator();

  // Whether the run was asked to stop: the same on all ranks, which must call it equally often.
  bool must_stop_evaluation();
  void add_evaluation(std::vector<std::string> names, std::function<std::optional<Evaluation>()> evaluate);
  void fit(detail::TrainerSteps& steps);

  const std::unique_ptr<detail::TrainingLoop> loop_;
};

}  // namespace libtrain
