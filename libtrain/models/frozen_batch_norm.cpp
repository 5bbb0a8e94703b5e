#include <libtrain/models/frozen_batch_norm.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

namespace libtrain::models {

FrozenBatchNorm2dImpl::FrozenBatchNorm2dImpl(std::int64_t channels, double epsilon)
    : epsilon_(epsilon),
      weight_(register_buffer("weight", at::ones({channels}))),
      bias_(register_buffer("bias", at::zeros({channels}))),
      running_mean_(register_buffer("running_mean", at::zeros({channels}))),
      running_var_(register_buffer("running_var", at::ones({channels}))) {}

at::Tensor FrozenBatchNorm2dImpl::forward(const at::Tensor& x) {
  const at::Tensor factor = scale();
  return x * factor.view({1, -1, 1, 1}) + (bias_ - running_mean_ * factor).view({1, -1, 1, 1});
}

at::Tensor FrozenBatchNorm2dImpl::after(torch::nn::Conv2dImpl& convolution, const at::Tensor& x) {
  const auto& options = convolution.options;
  const auto* padding = std::get_if<torch::ExpandingArray<2>>(&options.padding());
  TORCH_CHECK(padding != nullptr && !options.bias(), "A frozen batch norm follows convolutions without a bias only.");
  const at::Tensor factor = scale();
  return at::conv2d(x, convolution.weight * factor.view({-1, 1, 1, 1}), bias_ - running_mean_ * factor,
                    *options.stride(), **padding, *options.dilation(), options.groups());
}

std::function<torch::nn::AnyModule(std::int64_t channels)> frozen_batch_norm_factory(double epsilon) {
  return [epsilon](std::int64_t channels) { return torch::nn::AnyModule(FrozenBatchNorm2d(channels, epsilon)); };
}

}  // namespace libtrain::models
