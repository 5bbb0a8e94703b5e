#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

struct ReplicaCheckOptions {
  /// Compare buffers, too. Running statistics of batch norm differ between ranks unless BufferPolicy makes them equal.
  bool buffers = false;
};

/// Throws UsageError on every rank, all with the same text (ErrorScope::all_ranks), unless all ranks' parameters have
/// the same bits. The text names the first tensor that differs and the ranks whose tensor differs from that of most
/// ranks (from the lowest rank's, if there is no majority). All ranks must call it, while no gradient is being reduced.
///
/// Compares bits, not values: equal NaN are equal, 0.0 and -0.0 are not. Elements are compared in the order of their
/// indices, so layouts such as channels_last may differ. Throws UsageError for sparse tensors.
///
/// It reads the parameters once (a second of one core for several GB; tensors on a GPU are copied to the host one by
/// one) and exchanges a few bytes.
void check_replicas(const torch::nn::Module& module, Communicator& communicator,
                    const ReplicaCheckOptions& options = {});

/// Calls check_replicas() every so many steps.
///
///     ReplicaCheck replica_check{*model, communicator, 1000};
///     ...
///     optimizer.step();
///     replica_check.after_step();
///
/// Module and communicator must outlive it. Not thread-safe.
class ReplicaCheck {
 public:
  /// `every` is the same on all ranks; 0 means never. Throws UsageError for less.
  ReplicaCheck(const torch::nn::Module& module, Communicator& communicator, std::int64_t every,
               ReplicaCheckOptions options = {});

  /// Counts a step, and checks after each `every`-th. All ranks must call it, after the optimizer's step. Throws as
  /// check_replicas does, with the number of the step, counted from 1.
  void after_step();

 private:
  const torch::nn::Module& module_;
  Communicator& communicator_;
  const std::int64_t every_;
  const ReplicaCheckOptions options_;
  std::int64_t steps_ = 0;
};

namespace detail {

/// As check_replicas, for the parameters that require a gradient: `when` follows "have diverged", and `advice` is at
/// the end.
void check_trained_replicas(const torch::nn::Module& module, Communicator& communicator, const std::string& when,
                            const std::string& advice);

/// 64 bits computed from the tensor's elements in the order of their indices, the same on all hosts of one byte order.
/// Every change inside one aligned word of 8 bytes changes the digest; two tensors that differ otherwise have the same
/// digest with a probability of about 2^-64. Not for use against an adversary.
std::uint64_t digest_of(const at::Tensor& tensor);

}  // namespace detail

}  // namespace libtrain
