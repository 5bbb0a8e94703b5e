#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>

namespace libtrain::models::detail {

/// Whether fused_batch_norm has kernels for norm(x): x float32, bfloat16 or float16 in channels_last on a CUDA GPU,
/// with a multiple of 8 channels, norm in training, with float32 parameters, running statistics and a momentum, and
/// `residual` undefined or of the shape and dtype of x.
bool can_fuse_batch_norm(const torch::nn::BatchNorm2dImpl& norm, const at::Tensor& x, const at::Tensor& residual);

/// norm(x), plus `residual` if it is defined, and rectified if `is_rectified`, with one pass over memory for the
/// statistics and one for the rest; two backward. Sums are in float32 and rounded once at the end, statistics have the
/// same bits each time. Updates the running statistics as norm does. Cannot be differentiated twice.
at::Tensor fused_batch_norm(torch::nn::BatchNorm2dImpl& norm, const at::Tensor& x, const at::Tensor& residual,
                            bool is_rectified);

}  // namespace libtrain::models::detail
