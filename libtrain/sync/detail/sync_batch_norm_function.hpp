#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The state that a SyncBatchNorm layer shares with its copies and with the graphs of its forward passes.
struct SyncBatchNormState {
  std::shared_ptr<Communicator> communicator;
  double gradient_weight = 1;  ///< see SyncBatchNormImpl::set_gradient_weight
};

/// Statistics of each channel over the samples of all ranks, the same bits on every rank: in float64 for float64 input,
/// otherwise in float32.
struct BatchStatistics {
  at::Tensor count;       ///< [], float64: values of a channel; a tensor, so that the host need not wait for a GPU
  at::Tensor mean;        ///< [C]
  at::Tensor variance;    ///< [C], biased: the sum of squared deviations divided by `count`
  bool is_empty = false;  ///< no rank has a sample; mean and variance are undefined then
};

/// Throws UsageError, on all ranks, if `values` is 1, which has no variance.
void require_more_than_one_value(double values, const Communicator& communicator);

/// All ranks must call it with dense (also channels_last) input [N, C, ...] of equally many channels; N may be 0 and
/// may differ. One all-gather of 2 C + 1 numbers from each rank. Throws UsageError on all ranks if they have one value
/// in total.
///
/// Each rank's mean and sum of squared deviations are combined in float64 as in T. Chan, G. Golub and R. LeVeque,
/// Algorithms for Computing the Sample Variance (The American Statistician, 1983), which keeps its accuracy if the mean
/// is much larger than the deviation, unlike a sum of squares.
BatchStatistics batch_statistics(const at::Tensor& input, Communicator& communicator);

/// (input - mean) / sqrt(variance + eps) * weight + bias, of input's dtype and memory format, for dense input and
/// weight and bias [C]. `statistics` must be those of batch_statistics(input): backward() differentiates through them.
/// All ranks must run its backward() (for an input that needs a gradient: one all-reduce of 2 C numbers), and several
/// of them in the same order. The gradients of weight and bias are sums over this rank's samples only.
at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const BatchStatistics& statistics, double eps,
                           const std::shared_ptr<SyncBatchNormState>& state);

}  // namespace libtrain::detail
