#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <libtrain/base/trace.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/bucket_plan.hpp>
#include <libtrain/sync/module_ref.hpp>
#include <libtrain/sync/synchronization_statistics.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain {

namespace detail {
class GradientRounds;
}

/// The meaning of a parameter without a gradient.
enum class UnusedParameters {
  refused,  ///< a mistake: wait() fails on all ranks and names parameters and ranks
  allowed,  ///< its gradient is zero on this rank; if no rank has one, an undefined gradient stays undefined
};

/// What happens to a gradient with NaN or infinity.
enum class NonFinite {
  unchecked,  ///< it is averaged like any other; the first NaN found in one element of each average gives a warning
  skipped,    ///< wait() returns false on all ranks, and all gradients are undefined: optimizers then change nothing
  fatal,      ///< wait() throws on all ranks and names rank, parameter and round
};

/// What wait() does with buffers, such as the running statistics of batch norm.
enum class BufferPolicy {
  local,      ///< nothing: ranks keep their own until broadcast_buffers()
  broadcast,  ///< all ranks get those of the first rank that had samples (of rank 0 without set_samples)
  averaged,   ///< floating ones are averaged, weighted as gradients are, others (in a round without samples all)
              ///< broadcast
};

/// Whether wait() checks for replicas that have diverged, without an additional message.
enum class Replicas {
  compared,  ///< one element of each trainable parameter, another in each round (on a GPU in each eighth); if ranks
             ///< differ, wait() fails on all and names parameter and ranks. A few differences are found rounds later
  unchecked  ///< for ranks that change their copies on purpose, or whose processors round differently
};

enum class Overlap {
  backward,  ///< a bucket is reduced as soon as it is full, while backward() runs; in wait(), if the module on a GPU
             ///< has SyncBatchNorm layers and parameters may be unused, as ranks would call collectives in different
             ///< orders
  none,      ///< wait() reduces: any number of backward() passes may precede it, and reach a parameter many times
};

struct SynchronizerOptions {
  BucketLimits buckets = {};
  /// Names of parameters, one list for each bucket, in the order of reduction, instead of a computed plan; each
  /// trainable parameter once.
  std::vector<std::vector<std::string>> plan = {};
  /// Plan again after the first round, by the order of rank 0's gradients. Ignored if a plan is given.
  bool replan = true;
  UnusedParameters unused = UnusedParameters::refused;
  NonFinite non_finite = NonFinite::unchecked;
  BufferPolicy buffers = BufferPolicy::local;
  Replicas replicas = Replicas::compared;
  Overlap overlap = Overlap::backward;
  /// Null: gradients are sent unchanged.
  std::shared_ptr<WireFormat> wire_format = {};
  /// Receives spans of copied gradients, of waiting, and of every bucket's reduction; must outlive the synchronizer.
  /// Null: no spans.
  TraceSink* trace = nullptr;
};

/// Keeps the replicas of a module equal: averages gradients over all ranks while backward() still runs.
///
///     GradientSynchronizer synchronizer{*model, communicator};   // all ranks now hold rank 0's weights
///     for (auto& batch : batches) {
///       loss(model, batch).backward();      // buckets are reduced as they fill
///       synchronizer.wait();                // gradients are now the average over all ranks
///       optimizer.step();
///       synchronizer.zero_grad();
///     }
///
/// One round is any number of backward() under no_sync(), one backward() without, and one wait(). The states of a
/// bucket in a round:
///   filling   gradients arrive, in any order; each is copied to its place, to which parameter.grad() then refers; the
///             memory of a large one (see BucketLimits::alone_bytes) itself becomes its place;
///   full      all have arrived; it waits for the buckets before it, since all ranks reduce in plan order;
///   reducing  its collectives are queued on the communicator;
///   averaged  wait() has seen them finish; the parameters' gradients are the average.
/// A gradient's place keeps its value until the next round, so optimizers may read `parameter.grad()` at any time until
/// then. `zero_grad()` of any optimizer may be used instead of this one's, with either setting.
///
/// A mistake on some ranks ends the round on all of them: a small message after the buckets reports it, the next wait()
/// throws the same UsageError on every rank (ErrorScope::all_ranks), and the communicator can still be used. A method
/// that is called at the wrong point of a round throws UsageError; the message says when to call it. A round that fails
/// in another way, such as by the loss of a peer, cannot be ended: every later call throws the same error.
///
/// A graph may record a round (see StepGraph), after two rounds without recording, with NonFinite::unchecked, a wire
/// format that is recordable, and without set_samples() and join(): anything else throws UsageError on all ranks. The
/// status of a recorded round is exchanged once, while it is recorded. Replays reduce in the same buckets; they check
/// neither replicas nor gradients, and count neither in rounds() nor in statistics(). Which parameters are used, and
/// which are trainable, is then fixed: after a change, record again.
///
/// Parameters may be frozen and unfrozen (set_requires_grad) between wait() and the next forward pass, on all ranks
/// equally. Parameters that are created or replaced after construction are not synchronised; torch::load(model)
/// replaces them, so the next wait() throws. The module and the communicator must outlive this object. Two
/// synchronizers whose backward passes run at the same time need separate communicators (split); all ranks must call
/// their wait() in the same order. Hooks run on the threads that run backward(); all other calls must be on one thread.
class GradientSynchronizer {
 public:
  /// All ranks must call it. Compares the modules (see require_same_model) and the options, then copies rank 0's
  /// parameters and buffers to all ranks. Throws UsageError, on all ranks, if either differs, for a module without
  /// trainable parameters, for gradients that buckets cannot hold, for parameters that another synchronizer has, and
  /// for a given plan that does not name each trainable parameter once or mixes dtypes in a bucket. `module` is a
  /// module, a module holder, or a shared pointer to a module.
  GradientSynchronizer(ModuleRef module, Communicator& communicator, SynchronizerOptions options = {});

  /// Removes the hooks; gradients are unchanged.
  ~GradientSynchronizer();

  GradientSynchronizer(const GradientSynchronizer&) = delete;  // hooks refer to this object's state
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;

  /// Returns when every gradient is the average over all ranks; true unless NonFinite::skipped found a reason to skip.
  /// All ranks must call it. Throws UsageError for a round that failed on any rank (the message says what to do), and
  /// CommunicationError when a peer is lost or the communicator's deadline passes.
  bool wait();

  /// Resets all gradients to undefined, at no cost: the next backward() writes instead of adding. Throws UsageError
  /// between backward() and wait().
  void zero_grad();

  /// While it exists, backward() adds to this rank's gradients and reduces nothing: the micro-steps of an accumulated
  /// batch. Call the round's last backward() after the guard is destroyed. Scale losses so that their sum is the mean
  /// you want.
  class [[nodiscard]] NoSync {
   public:
    ~NoSync();
    NoSync(NoSync&& other) noexcept = default;
    NoSync& operator=(NoSync&&) = delete;  // a guard lasts as long as its scope

   private:
    friend class GradientSynchronizer;
    explicit NoSync(std::shared_ptr<detail::GradientRounds> rounds) : rounds_(std::move(rounds)) {}
    std::shared_ptr<detail::GradientRounds> rounds_;
  };
  NoSync no_sync();

  /// Sets the number of samples (0 or more) over which this rank's gradient of the next round is a mean: gradients are
  /// then averaged by sample, not by rank. Call it before the round's backward() without no_sync(), on all ranks or on
  /// none. Returns the samples of all ranks. The gradients of a rank with 0 samples are ignored, even if they are NaN.
  /// If the module has a SyncBatchNorm, call it before the first backward() under no_sync(), too.
  std::int64_t set_samples(std::int64_t samples);

  /// For ranks whose data has ended while others still train: takes part in one round without gradients (set_samples(0)
  /// on this rank; the others must call set_samples, too). Returns true, with gradients to step with instead of the
  /// previous ones, or false when every rank calls it. Throws as wait() does, and UsageError for gradients accumulated
  /// under no_sync().
  ///
  ///     while (synchronizer.join()) optimizer.step();
  bool join();

  /// Asks all ranks to stop: when this rank has ended a later round by wait() or join(), stop_requested() is true on
  /// all ranks. No additional message. Does nothing in rounds that a graph replays.
  ///
  ///     if (stop.is_requested()) synchronizer.request_stop();   // a StopRequest, of any rank
  ///     synchronizer.wait();
  ///     ...
  ///     if (synchronizer.stop_requested()) break;               // all ranks, after the same step
  void request_stop();

  /// Whether a rank had called request_stop() before the end of a round: the same on all ranks after the same round.
  bool stop_requested() const;

  /// Call it before backward(): walks the graph of `outputs` to find the parameters that get no gradient, so that their
  /// buckets need not wait until wait(). Not with checkpointing that runs backward() inside backward(), whose
  /// parameters are not in the graph. Does nothing under no_sync(). For UnusedParameters::allowed.
  void find_unused(const std::vector<at::Tensor>& outputs);

  /// The same for parameters given by name, in this and all later rounds, on this rank; replaces the previous
  /// declaration. Call it between rounds. Throws UsageError for an unknown name. For UnusedParameters::allowed.
  void declare_unused(const std::vector<std::string>& names);

  /// Copies rank 0's buffers (running statistics of batch norm) to all ranks, such as before an evaluation. All ranks
  /// must call it.
  void broadcast_buffers();

  /// On the CPU, chooses bucket limits from the latency and bandwidth of this communicator, measured now, and the times
  /// at which gradients became ready in the last round, and plans again. Returns the limits, `alone_bytes` unchanged.
  /// All ranks must call it, between two rounds. UsageError if a plan was given, before the first round, and on a GPU.
  BucketLimits tune();

  /// The buckets in the order in which they are reduced. Members are indices into parameter_names().
  const std::vector<Bucket>& buckets() const;

  /// All parameters, including frozen ones, from the last to the first registered.
  std::vector<std::string> parameter_names() const;

  /// Whether NonFinite::skipped has skipped the last round, also if that was join(), which does not return it.
  bool skipped() const;

  /// Rounds that wait() and join() have ended.
  std::int64_t rounds() const;

  /// The cost of synchronisation on this rank since construction.
  SynchronizationStatistics statistics() const;

 private:
  std::shared_ptr<detail::GradientRounds> rounds_;
};

}  // namespace libtrain
