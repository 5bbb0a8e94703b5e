#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

namespace libtrain::models {

/// Batch norm whose statistics, scale and shift are constants, with the names of torchvision's FrozenBatchNorm2d:
/// buffers `weight`, `bias`, `running_mean` and `running_var`.
class FrozenBatchNorm2dImpl : public torch::nn::Module {
 public:
  explicit FrozenBatchNorm2dImpl(std::int64_t channels, double epsilon = 1e-5);

  at::Tensor forward(const at::Tensor& x);

  /// forward(convolution(x)) in one pass over memory: a scaled convolution with a bias.
  at::Tensor after(torch::nn::Conv2dImpl& convolution, const at::Tensor& x);

 private:
  at::Tensor scale() const { return weight_ * (running_var_ + epsilon_).rsqrt(); }

  const double epsilon_;
  at::Tensor weight_, bias_, running_mean_, running_var_;
};
TORCH_MODULE(FrozenBatchNorm2d);

/// For ResNetOptions::norm.
std::function<torch::nn::AnyModule(std::int64_t channels)> frozen_batch_norm_factory(double epsilon = 1e-5);

}  // namespace libtrain::models
