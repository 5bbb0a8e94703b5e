#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

namespace detail {
struct BatchStatistics;
struct SyncBatchNormState;
}  // namespace detail

/// Batch norm over the samples of all ranks: N ranks with batch B normalise as one process with batch N*B does (S.
/// Ioffe and C. Szegedy, Batch Normalization, ICML 2015). Parameters, buffers and options are those of
/// torch::nn::BatchNorm1d, 2d and 3d, with the same names, so each loads the other's state.
///
/// While training, all ranks must run forward() and backward() of all layers that share a communicator in the same
/// order and equally often, each with one collective: an all-gather of 2 C + 1 numbers, an all-reduce of 2 C. A rank
/// without samples takes part with an empty batch (with GradientSynchronizer::join the others would wait here). In
/// evaluation nothing is sent.
///
/// backward() computes input gradients of the sum of all ranks' losses (see set_gradient_weight), and weight and bias
/// gradients that are sums over this rank's samples: averaged over ranks by a GradientSynchronizer, they are those of
/// the mean of the ranks' losses. It cannot be differentiated again.
///
/// Use a communicator for these layers only: collectives run in the order of their calls, so backward() would wait here
/// for every bucket that a GradientSynchronizer has started on it. replace_batch_norms and sync_batch_norm_factory
/// create one for all layers.
///
/// Statistics are computed in float32 for float32, float16 and bfloat16, in float64 for float64; running statistics
/// keep their dtype. The output has the dtype and the memory format (channels_last) of the input.
class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  /// Clones share the communicator. Throws UsageError for a null one.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& the_options, std::shared_ptr<Communicator> communicator);

  /// [N, num_features, ...] of 2 to 5 dimensions, N 0 or more. Throws UsageError for another shape or a dtype that is
  /// not floating and, on all ranks, for one value a channel on all ranks together while training.
  at::Tensor forward(const at::Tensor& input);

  /// The weight of this rank's gradients in their average, relative to other ranks. A GradientSynchronizer sets it for
  /// the layers of its module: in set_samples() by samples, and to 1 when it is created and when a round ends. By hand,
  /// call it in each round, after set_samples() and before the first backward(), so that each rank's loss has the same
  /// weight inside backward() as outside. Throws UsageError for a negative or non-finite number.
  void set_gradient_weight(double weight);

  /// Replaces `batch_norm`, a BatchNorm1d, 2d or 3d with the same options: its parameters become this layer's, the same
  /// tensors, so existing optimizers continue with them; buffers share their memory.
  void share_state_of(const torch::nn::Module& batch_norm);

  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  at::Tensor normalize_alone(const at::Tensor& input, bool by_batch, double momentum) const;
  double count_batch();
  void update_running_statistics(const detail::BatchStatistics& statistics);

  std::shared_ptr<detail::SyncBatchNormState> state_;
};
TORCH_MODULE(SyncBatchNorm);

/// Replaces every BatchNorm1d, 2d and 3d below `root` by a SyncBatchNorm with its parameters, buffers, options and
/// mode, on one communicator split from `communicator` for all of them; returns their number. All ranks must call it,
/// before the GradientSynchronizer is created and with the same module; optimizers may exist already.
///
/// LibTorch allows only children of torch::nn::Sequential (at any depth) to be replaced: other modules call their batch
/// norm through a member of a fixed type, such as `torch::nn::BatchNorm2d bn1`, which a change of the module tree does
/// not affect, and elements of ModuleList and ModuleDict are called through a cast to a fixed type. If there is such a
/// batch norm, nothing is changed and UsageError names it. For models with a configurable norm use
/// sync_batch_norm_factory instead: `resnet50({.norm = sync_batch_norm_factory(communicator)})`; in your own module
/// make the member a SyncBatchNorm or a torch::nn::AnyModule. Other holders of a replaced module keep the old one.
std::size_t replace_batch_norms(torch::nn::Module& root, Communicator& communicator);

/// Returns a function that creates SyncBatchNorm layers of so many channels, all on one communicator split from
/// `communicator`, for modules that keep their norm in a torch::nn::AnyModule. All ranks must call it; the returned
/// function calls no collective.
std::function<torch::nn::AnyModule(std::int64_t channels)> sync_batch_norm_factory(Communicator& communicator);

}  // namespace libtrain
