#pragma once

#include <cstdint>
#include <functional>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

namespace libtrain::models::detail {

/// Creates a norm of so many channels; if it is empty, norms are torch::nn::BatchNorm2d.
using NormFactory = std::function<torch::nn::AnyModule(std::int64_t channels)>;

/// Channels and stride of one residual block. The output has `width` times the block's expansion channels.
struct ResidualBlockOptions {
  std::int64_t channels;
  std::int64_t width;
  std::int64_t inner_width;  ///< channels between a bottleneck's 1x1 convolutions
  std::int64_t groups;       ///< of a bottleneck's 3x3 convolution
  std::int64_t stride;
  NormFactory norm = {};
};

torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                              std::int64_t groups = 1);

torch::nn::AnyModule make_norm(const NormFactory& factory, std::int64_t channels);

/// The norm of the convolution of x. A FrozenBatchNorm2d is a part of the convolution; a BatchNorm2d in training on a
/// GPU (can_fuse_batch_norm) is one operator with what follows.
at::Tensor convolve(torch::nn::Conv2dImpl& convolution, torch::nn::AnyModule& norm, const at::Tensor& x);

/// Makes what is added to a block's last norm.
using Residual = std::function<at::Tensor()>;

/// The same, plus the residual if it is not empty, rectified.
at::Tensor convolve_and_rectify(torch::nn::Conv2dImpl& convolution, torch::nn::AnyModule& norm, const at::Tensor& x,
                                const Residual& residual = {});

/// 1x1 convolution and norm for the shortcut of a block whose output differs in shape from its input, else empty.
torch::nn::Sequential projection(const ResidualBlockOptions& options, std::int64_t expansion);

/// Two 3x3 convolutions; expansion 1.
class BasicBlockImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 1;
  explicit BasicBlockImpl(const ResidualBlockOptions& options);
  at::Tensor forward(const at::Tensor& x);
  void zero_last_norm();

 private:
  torch::nn::Sequential downsample_;
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::AnyModule bn1_, bn2_;
};
TORCH_MODULE(BasicBlock);

/// 1x1, 3x3 (with the stride) and 1x1 convolutions; expansion 4.
class BottleneckImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;
  explicit BottleneckImpl(const ResidualBlockOptions& options);
  at::Tensor forward(const at::Tensor& x);
  void zero_last_norm();

 private:
  torch::nn::Sequential downsample_;
  torch::nn::Conv2d conv1_, conv2_, conv3_;
  torch::nn::AnyModule bn1_, bn2_, bn3_;
};
TORCH_MODULE(Bottleneck);

}  // namespace libtrain::models::detail
