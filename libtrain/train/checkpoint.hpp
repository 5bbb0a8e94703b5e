#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <libtrain/checkpoint/checkpoint_manifest.hpp>
#include <libtrain/checkpoint/checkpoint_retention.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/loader_state.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/optim/moving_average.hpp>
#include <libtrain/optim/named_tensors.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>

namespace libtrain {

class Context;

struct CheckpointOptions {
  /// Write while the training goes on, from a copy of the state in host memory; otherwise save() returns on rank 0 when
  /// the checkpoint is complete, and uploaded if there is a store; other ranks wait for that in wait() only.
  bool in_background = true;
  /// Saves that may fail one after the other, such as on a full disk, before save() throws; each is a warning. Uploads
  /// to the store are counted apart.
  int failures_allowed = 2;
  /// A location in Azure Blob Storage, S3 or Google Cloud Storage (docs/storage.md has the forms), to which each
  /// complete checkpoint is copied in the background, and from which load_latest() reads. For runs whose root does not
  /// outlive the machine. Empty: none.
  std::string store = {};
  std::string run_id = {};           ///< Context::run_id(); empty: a random one
  std::string configuration = "{}";  ///< of the run, recorded in the checkpoint: a JSON object
  // The last member: before others that may throw, GCC 12 warns, without a reason, that it may be uninitialised.
  CheckpointRetention retention = {};
};

/// Where a run is in its data and steps.
struct CheckpointPosition {
  std::int64_t step = 0;   ///< steps that were made
  std::int64_t epoch = 0;  ///< epochs that were finished
  /// LoaderEpochOf::state() of this rank; save() combines those of all ranks. For DataLoaderOf::resume().
  std::optional<data::LoaderState> loader = {};
  std::map<std::string, double> metrics = {};  ///< for CheckpointRetention::metric, and for people
};

/// A part of a program's state that a Checkpoint saves and loads.
class Checkpointable {
 public:
  virtual ~Checkpointable() = default;

  /// The tensors, on any device; save() copies them before it returns. All ranks call it, and those of rank 0 are
  /// stored: a state that differs between ranks must be gathered there.
  virtual optim::NamedTensors tensors() = 0;

  /// Whether the ranks share the state, so that no rank needs the memory for all of it.
  virtual bool is_sharded() const { return false; }

  /// Of a sharded part: tensors that this rank stores, with names that no other rank's have; all ranks' are those of
  /// tensors(). All ranks call it.
  virtual optim::NamedTensors shard() { return tensors(); }

  /// Continues from what tensors() has returned. All ranks call it, with the same tensors, on the communicator's
  /// device; of a sharded part, rank 0 gets the tensors, in host memory, and the others none. Throws UsageError for a
  /// state that does not fit, on all ranks if it is sharded.
  virtual void load(const optim::NamedTensors& tensors) = 0;
};

/// Saves what a run needs to continue as if it had never stopped, and loads it on any number of ranks: weights,
/// optimizer, averages, scaler, the position in the data, and the generators of random numbers.
///
///     lt::Checkpoint checkpoint{context};
///     checkpoint.add("model", *model);
///     checkpoint.add("optimizer", sgd, *model);
///     std::int64_t step = 0;
///     std::optional<lt::data::LoaderState> loader_state;
///     if (const auto position = checkpoint.load_latest()) {
///       step = position->step;
///       loader_state = position->loader;
///     }
///     ...
///     if (++step % 1000 == 0) checkpoint.save({.step = step, .epoch = epoch, .loader = batches.state()});
///     ...
///     checkpoint.wait();
///
/// A checkpoint is a folder `root`/step-<step> that is complete or absent (docs/checkpoints.md). Rank 0 writes and
/// reads it, so the root need not be shared by hosts; if it is, each rank writes its share of sharded parts. Weights
/// are model.safetensors under the model's own names, which Python reads. Loading runs no code.
///
/// All ranks must create it, and call all of its methods in the same order. Between wait() of the synchronizer
/// and the next forward pass, the state of all parts belongs to one step: call save() there. Buffers that differ
/// between ranks (BufferPolicy::local) are stored, and loaded on all ranks, as rank 0 has them, and so are averages of
/// them. Add parts after the GradientSynchronizer has been created. Parts must outlive this object. Not thread-safe.
class Checkpoint {
 public:
  using Accept = std::function<void(const CheckpointManifest& manifest)>;

  /// Folder DIR/checkpoints, where DIR is `--output`; the run's id and options are recorded.
  explicit Checkpoint(Context& context, CheckpointOptions options = {});

  /// Creates no folder before the first save(). The communicator must outlive this object. Throws UsageError for
  /// options out of range, and EnvironmentError for a store whose credentials are unusable.
  Checkpoint(Communicator& communicator, std::filesystem::path root, CheckpointOptions options = {});

  /// Waits for the writer, and for a running upload, which is not tried again. Logs a failure that no call has
  /// reported.
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;  // one writer
  Checkpoint& operator=(const Checkpoint&) = delete;

  /// `name` is that of the file, such as "model" for model.safetensors: letters, digits, '_' and '-'. Throws UsageError
  /// for another name or one that was added before, and for an optimizer as optimizer_state() does.
  void add(const std::string& name, torch::nn::Module& module);
  void add(const std::string& name, torch::optim::Optimizer& optimizer, const torch::nn::Module& module);
  void add(const std::string& name, ShardedOptimizer& optimizer);
  void add(const std::string& name, optim::MovingAverage& average);
  void add(const std::string& name, optim::LossScaler& scaler);
  void add(const std::string& name, std::unique_ptr<Checkpointable> part);

  /// Saves all parts as step-<step>. With in_background it waits for the write before, copies the state to host memory,
  /// and returns. A write that failed is reported here: as a warning on rank 0, or there as an EnvironmentError if that
  /// happened more than failures_allowed times in a row; older checkpoints are intact. Throws EnvironmentError on all
  /// ranks if the folder cannot be used, such as by a second run that writes there.
  void save(const CheckpointPosition& position);

  /// Loads the newest checkpoint that is complete and undamaged, in the root or in the store, from which it is copied
  /// to the root; std::nullopt if there is none. Damaged ones are named in warnings and passed over. Throws
  /// EnvironmentError, the same on all ranks, if all are damaged, the folder or the store cannot be read, or a newer
  /// libtrain wrote it, and as load(). `accept` gets the manifest before anything is loaded, on all ranks; what it
  /// throws on a rank is thrown on all.
  std::optional<CheckpointPosition> load_latest(const Accept& accept = {});

  /// Loads this checkpoint, verified. Throws EnvironmentError if it is damaged, and UsageError if it lacks a part, has
  /// one that was not added, or a part does not fit, the same on all ranks; parts before that one have been loaded
  /// then.
  ///
  /// Each rank's generators of random numbers continue if the number of ranks is that of the checkpoint; otherwise they
  /// are seeded from rank 0's and the step.
  CheckpointPosition load(const std::filesystem::path& folder, const Accept& accept = {});

  struct Best {
    std::int64_t step = 0;
    std::optional<double> value = {};  ///< of the retention's metric; std::nullopt if the checkpoint does not have it
  };

  /// The best checkpoint of this run and those that it continues, which the retention keeps in the root: that of
  /// `step`, copied from the store if it is only there; if it is lost, or `step` is -1, the best in the root by the
  /// retention's metric; std::nullopt if none has it. The same on all ranks, which must all call it. A damaged one
  /// counts as lost, with a warning. Throws EnvironmentError if one cannot be copied.
  std::optional<Best> keep_best(std::int64_t step);

  /// Waits until the last checkpoint is complete, in the root and in the store. Throws EnvironmentError on all ranks if
  /// it could not be written, also if a warning has reported that before.
  void wait();

  /// Keeps the checkpoint of this step, whatever the retention says, until another one is marked; in the root, not in
  /// the store. All ranks must call it. Throws UsageError if there is none.
  void mark_best(std::int64_t step);

  const std::filesystem::path& root() const;

 private:
  class State;
  const std::unique_ptr<State> state_;
};

}  // namespace libtrain
