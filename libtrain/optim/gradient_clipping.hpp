#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/optim/device_value.hpp>

namespace libtrain::optim {

struct ClippingOptions {
  double max_norm = 1;  ///< more than 0
  /// 2 (Euclidean), 1 (sum of magnitudes) or infinity (largest magnitude).
  double norm = 2;
  /// Throw UsageError, before any gradient is changed, if the norm is NaN or infinite. Otherwise such a norm makes the
  /// gradients NaN or zero, as in PyTorch. With gradients on a GPU, the host then waits for the norm.
  bool error_if_non_finite = false;
};

/// The norm of the gradients of all `parameters` as one vector; 0 if there are none. Parameters without a gradient are
/// skipped, and those listed twice (tied weights) counted once. Gradients must be dense, of any shape, and of float16,
/// bfloat16, float32 or float64; throws UsageError for others, and for a `norm` that ClippingOptions does not list.
///
/// After GradientSynchronizer::wait() every rank gets the same bits, without communication, since the gradients are
/// equal: the host sums in float64, in an order that depends neither on the processor nor on the number of threads;
/// GPUs sum a gradient in float32 (float64 for float64) and must be of one kind. One pass over the memory. With
/// gradients on a GPU, nothing waits until the DeviceValue is converted to double; it is on the GPU of the first of
/// them. Any thread.
DeviceValue gradient_norm(const std::vector<at::Tensor>& parameters, double norm = 2);

/// Scales the gradients of all `parameters`, in place, by min(1, max_norm / (norm + 1e-6)), as
/// torch.nn.utils.clip_grad_norm_ does: Pascanu et al., "On the difficulty of training recurrent neural networks", ICML
/// 2013, section 3.2. Returns the norm before scaling, as gradient_norm() does; if that factor is 1, gradients
/// on the host are not touched, and those on a GPU multiplied by 1. With all of them on GPUs, nothing waits.
///
///     synchronizer.wait();                                         // the norm is that of the averaged gradients
///     const auto norm = optim::clip_gradients(model->parameters(), {.max_norm = 1});
///     optimizer.step();
///
/// Throws UsageError as gradient_norm() does, and for options out of range.
DeviceValue clip_gradients(const std::vector<at::Tensor>& parameters, const ClippingOptions& options = {});

}  // namespace libtrain::optim

namespace libtrain::optim::detail {

/// The defined, non-empty gradients of `parameters`, each parameter's once, grouped by device and dtype, as operators
/// on lists of tensors require; in the order of the parameters. Throws UsageError for gradients that gradient_norm()
/// refuses.
std::vector<std::vector<at::Tensor>> group_gradients(const std::vector<at::Tensor>& parameters);

}  // namespace libtrain::optim::detail
