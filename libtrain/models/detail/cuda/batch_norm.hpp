#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>

namespace libtrain::models::detail {

/// Whether fused_batch_norm has kernels for norm(x): x [N, C, H, W] is float32, bfloat16 or float16, in channels_last
/// on a CUDA GPU, C a multiple of 8; it has two values a channel or more; norm is in training, with float32 parameters,
/// running statistics and a momentum.
bool can_fuse_batch_norm(const torch::nn::BatchNorm2dImpl& norm, const at::Tensor& x);

/// norm(x), plus `residual` of the same shape and dtype if it is defined, and rectified if `is_rectified`, where
/// can_fuse_batch_norm says so: one pass over memory for the statistics and one for the rest; two backward. Computes in
/// float32, sums of blocks in float64, and rounds once; has the same bits each time. Updates the running statistics as
/// norm does. backward() with create_graph throws.
at::Tensor fused_batch_norm(torch::nn::BatchNorm2dImpl& norm, const at::Tensor& x, const at::Tensor& residual,
                            bool is_rectified);

}  // namespace libtrain::models::detail
