#pragma once

#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

namespace libtrain::models::detail {

/// A convolution and a ReLU, with the names of torchvision's Conv2dNormActivation: the convolution is "0".
class RectifiedConvolutionImpl : public torch::nn::Module {
 public:
  explicit RectifiedConvolutionImpl(torch::nn::Conv2d convolution)
      : convolution_(register_module("0", std::move(convolution))) {}

  at::Tensor forward(const at::Tensor& x) { return convolution_->forward(x).relu_(); }

 private:
  torch::nn::Conv2d convolution_;
};
TORCH_MODULE(RectifiedConvolution);

}  // namespace libtrain::models::detail
