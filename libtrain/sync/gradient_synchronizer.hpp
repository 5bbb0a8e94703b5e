#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/bucket_plan.hpp>

namespace libtrain {

struct SynchronizerOptions {
  BucketLimits buckets;
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
/// One round is one backward() and one wait(). Life of a bucket in a round:
///   filling   gradients arrive, in any order, each copied to its place and made to live there;
///   full      all have arrived; it waits for the buckets before it, since all ranks reduce in plan order;
///   reducing  its all-reduce is queued on the communicator;
///   averaged  wait() has seen it end; the parameters' gradients are the average.
/// A gradient's place keeps its value until the next round, so optimizers may read `parameter.grad()` at leisure.
/// `zero_grad()` of any optimizer may be used instead of this one's, with either setting.
///
/// Every parameter that requires a gradient must receive one in every round; parameters are taken at construction.
/// The module and the communicator must outlive this object. Hooks run on the threads that run backward(); everything
/// else belongs to one thread.
class GradientSynchronizer {
 public:
  /// All ranks must call it. Compares the modules (see require_same_model), then copies rank 0's parameters and buffers
  /// to all ranks. Throws UsageError for a module without trainable parameters and for gradients no bucket can hold.
  GradientSynchronizer(torch::nn::Module& module, Communicator& communicator, SynchronizerOptions options = {});

  /// Removes the hooks; gradients stay as they are.
  ~GradientSynchronizer();

  GradientSynchronizer(const GradientSynchronizer&) = delete;  // hooks refer to this object's state
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;

  /// Returns when every gradient is the average over all ranks. Throws UsageError that names the parameters which
  /// backward() did not reach, and CommunicationError when a peer is lost or the communicator's deadline passes.
  void wait();

  /// Forgets all gradients, at no cost: the next backward() writes instead of adding. Throws UsageError between
  /// backward() and wait().
  void zero_grad();

  /// Makes all ranks' buffers (running statistics of batch norm) equal to rank 0's, such as before an evaluation. All
  /// ranks must call it.
  void broadcast_buffers();

  /// The buckets in the order in which they are reduced. Members count trainable parameters from the last to the first
  /// registered.
  const std::vector<Bucket>& buckets() const;

  /// Seconds that wait() has spent waiting since construction.
  double seconds_waiting() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace libtrain
