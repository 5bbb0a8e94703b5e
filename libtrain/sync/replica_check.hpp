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
/// the same bits. The text names the first tensor that differs and the ranks on which it is not what most ranks have
/// (what the lowest rank has, where there is no majority). All ranks must call it, when no gradient is under way.
///
/// Compares bits, not values: equal NaN are equal, 0.0 and -0.0 are not. Elements are taken in the order of their
/// indices, so that layouts such as channels_last may differ. Throws UsageError for sparse tensors.
///
/// Costs one reading of the parameters (a second of a core for several GB; tensors on a GPU are copied to the host one
/// by one) and one exchange of a few bytes.
void check_replicas(const torch::nn::Module& module, Communicator& communicator,
                    const ReplicaCheckOptions& options = {});

/// The same every so many steps.
///
///     ReplicaCheck replica_check{*model, communicator, 1000};
///     ...
///     optimizer.step();
///     replica_check.after_step();
///
/// Module and communicator must outlive it. Belongs to one thread.
class ReplicaCheck {
 public:
  /// `every` is the same on all ranks; 0 stands for never. Throws UsageError for less.
  ReplicaCheck(const torch::nn::Module& module, Communicator& communicator, std::int64_t every,
               ReplicaCheckOptions options = {});

  /// Counts a step, and checks after each `every`-th. All ranks must call it, after the optimizer's step. Throws what
  /// check_replicas throws, with the number of the step, the first one being 1.
  void after_step();

 private:
  const torch::nn::Module& module_;
  Communicator& communicator_;
  const std::int64_t every_;
  const ReplicaCheckOptions options_;
  std::int64_t steps_ = 0;
};

namespace detail {

/// Throws as check_replicas, for the parameters that require a gradient: `when` comes behind "have diverged", `advice`
/// at the end.
void check_trained_replicas(const torch::nn::Module& module, Communicator& communicator, const std::string& when,
                            const std::string& advice);

/// 64 bits that stand for the tensor's elements in the order of their indices, the same on all hosts of one byte order.
/// Whatever changes inside one aligned word of 8 bytes changes the digest; two tensors that differ otherwise have the
/// same one with a probability of about 2^-64. Not for use against an adversary.
std::uint64_t digest_of(const at::Tensor& tensor);

}  // namespace detail

}  // namespace libtrain
