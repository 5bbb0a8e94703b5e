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

/// What a parameter without a gradient means.
enum class UnusedParameters {
  refused,  ///< a mistake: wait() fails on all ranks and names parameters and ranks
  allowed,  ///< its gradient is zero on this rank; where no rank has one, an undefined one stays undefined
};

/// What happens to a gradient with NaN or infinity.
enum class NonFinite {
  unchecked,  ///< it is averaged like any other; the first NaN that one element of each average shows gives a warning
  skipped,    ///< wait() returns false on all ranks, and all gradients are undefined: optimizers then change nothing
  fatal,      ///< wait() throws on all ranks and names rank, parameter and round
};

/// What wait() does to buffers, such as the running statistics of batch norm.
enum class BufferPolicy {
  local,      ///< nothing: ranks keep their own until broadcast_buffers()
  broadcast,  ///< all ranks take those of the first rank that had samples (of rank 0 without set_samples)
  averaged,   ///< floating ones are averaged, weighted as gradients are, others (in a round without samples all)
              ///< broadcast
};

/// Whether wait() looks for replicas that have diverged, at no message of its own.
enum class Replicas {
  compared,  ///< one element of each parameter, another one in each round; where ranks differ, wait() fails on all of
             ///< them and names parameter and ranks. A difference in few elements is found some rounds later
  unchecked  ///< for ranks that change their copies on purpose, or whose processors round differently
};

enum class Overlap {
  backward,  ///< a bucket is reduced as soon as it is full, while backward() goes on
  none,      ///< wait() reduces: any number of backward() passes may come before it, and reach a parameter many times
};

struct SynchronizerOptions {
  BucketLimits buckets = {};
  /// Names of parameters, a list a bucket, in the order of reduction, instead of a computed plan; each trainable
  /// parameter once.
  std::vector<std::vector<std::string>> plan = {};
  /// Plan once more after the first round, by the order in which rank 0 saw gradients. Not with a plan given.
  bool replan = true;
  UnusedParameters unused = UnusedParameters::refused;
  NonFinite non_finite = NonFinite::unchecked;
  BufferPolicy buffers = BufferPolicy::local;
  Replicas replicas = Replicas::compared;
  Overlap overlap = Overlap::backward;
  /// Null: gradients travel as they are.
  std::shared_ptr<WireFormat> wire_format = {};
  /// Told of gradients that are copied, of waiting, and of every bucket's reduction; must outlive the synchronizer.
  /// Null: none.
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
/// One round is any number of backward() under no_sync(), one backward() without, and one wait(). Life of a bucket in a
/// round:
///   filling   gradients arrive, in any order; each is copied to its place and made to live there, or, if large (see
///             BucketLimits::alone_bytes), lies in memory of its own that becomes its place;
///   full      all have arrived; it waits for the buckets before it, since all ranks reduce in plan order;
///   reducing  its collectives are queued on the communicator;
///   averaged  wait() has seen it end; the parameters' gradients are the average.
/// A gradient's place keeps its value until the next round, so optimizers may read `parameter.grad()` at leisure.
/// `zero_grad()` of any optimizer may be used instead of this one's, with either setting.
///
/// A mistake that only some ranks make ends the round on all of them: a small message behind the buckets says so, the
/// next wait() throws the same UsageError on every rank (ErrorScope::all_ranks), and the communicator can still be
/// used. Methods throw UsageError where they do not belong, and say where they do.
///
/// Parameters may be frozen and unfrozen (set_requires_grad) between wait() and the next forward, on all ranks alike.
/// Parameters that are made or replaced after construction are not seen; torch::load(model) is one way to replace them,
/// and is refused by the next wait(). The module and the communicator must outlive
/// this object. Two synchronizers whose backward passes run at the same time need communicators of their own (split);
/// their wait() is called in one order on all ranks.
/// Hooks run on the threads that run backward(); everything else belongs to one thread.
class GradientSynchronizer {
 public:
  /// All ranks must call it. Compares the modules (see require_same_model) and the options, then copies rank 0's
  /// parameters and buffers to all ranks. Throws UsageError, on all ranks, where either differs, for a module without
  /// trainable parameters, for gradients no bucket can hold, for parameters that another synchronizer has, and for a
  /// given plan that does not name each trainable parameter once or mixes dtypes in a bucket. Takes a module, a module
  /// holder, or a shared pointer to one.
  GradientSynchronizer(ModuleRef module, Communicator& communicator, SynchronizerOptions options = {});

  /// Removes the hooks; gradients stay as they are.
  ~GradientSynchronizer();

  GradientSynchronizer(const GradientSynchronizer&) = delete;  // hooks refer to this object's state
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;

  /// Returns when every gradient is the average over all ranks; true unless NonFinite::skipped found a reason to skip.
  /// All ranks must call it. Throws UsageError for a round that went wrong on any rank, with what to do, and
  /// CommunicationError when a peer is lost or the communicator's deadline passes.
  bool wait();

  /// Forgets all gradients, at no cost: the next backward() writes instead of adding. Throws UsageError between
  /// backward() and wait().
  void zero_grad();

  /// While it lives, backward() adds to this rank's gradients and reduces nothing: the micro-steps of an accumulated
  /// batch. The round's last backward() comes after it has gone. Scale losses so that their sum is the mean you want.
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

  /// Says that this rank's gradient of the coming round is the mean over so many samples (0 or more): gradients are
  /// then averaged by sample, not by rank. Before the round's backward() without no_sync(), on all ranks or on none;
  /// returns the samples of all ranks. A rank with 0 counts for nothing, whatever its gradients are, NaN included.
  /// Where the module has a SyncBatchNorm, before the first backward() under no_sync(), too.
  std::int64_t set_samples(std::int64_t samples);

  /// For ranks whose data has ended while others still train: takes part in one round with nothing (set_samples(0) on
  /// this rank, and the others must call set_samples too), and returns true with gradients to step with instead of
  /// those there were, or false when every rank is here. Throws what wait() throws, and UsageError for gradients
  /// accumulated under no_sync().
  ///
  ///     while (synchronizer.join()) optimizer.step();
  bool join();

  /// Before backward(): the parameters that `outputs` do not depend on get no gradient in it. Walks the graph, so that
  /// buckets need not wait for them until wait(). Not with checkpoints that run backward() inside backward(), whose
  /// parameters are not in the graph. Under no_sync() it does nothing. For UnusedParameters::allowed.
  void find_unused(const std::vector<at::Tensor>& outputs);

  /// The same for parameters that are known by name, in this and all later rounds, on this rank; replaces what was
  /// declared before. Between rounds. Throws UsageError for a name that there is not. For UnusedParameters::allowed.
  void declare_unused(const std::vector<std::string>& names);

  /// Makes all ranks' buffers (running statistics of batch norm) equal to rank 0's, such as before an evaluation. All
  /// ranks must call it.
  void broadcast_buffers();

  /// Chooses bucket limits from the latency and bandwidth of this communicator, measured now, and the times at which
  /// gradients became ready in the last round, and plans anew; returns them, with `alone_bytes` as it was. All ranks
  /// must call it, between two rounds. Not with a plan given.
  BucketLimits tune();

  /// The buckets in the order in which they are reduced. Members count parameter_names().
  const std::vector<Bucket>& buckets() const;

  /// All parameters, frozen ones too, from the last to the first registered.
  std::vector<std::string> parameter_names() const;

  /// Whether NonFinite::skipped has skipped the last round: what wait() returned false for, and join() does not say.
  bool skipped() const;

  /// Rounds that wait() and join() have ended.
  std::int64_t rounds() const;

  /// What synchronising has cost on this rank since construction.
  SynchronizationStatistics statistics() const;

 private:
  std::shared_ptr<detail::GradientRounds> rounds_;
};

}  // namespace libtrain
