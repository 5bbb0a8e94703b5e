#include <libtrain/models/mnist.hpp>

#include <ATen/ops/dropout.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

namespace libtrain::models {

HorovodMnistNetImpl::HorovodMnistNetImpl()
    : conv1_(torch::nn::Conv2dOptions(1, 10, 5)),
      conv2_(torch::nn::Conv2dOptions(10, 20, 5)),
      fc1_(320, 50),
      fc2_(50, 10) {
  register_module("conv1", conv1_);
  register_module("conv2", conv2_);
  register_module("conv2_drop", conv2_drop_);
  register_module("fc1", fc1_);
  register_module("fc2", fc2_);
}

at::Tensor HorovodMnistNetImpl::forward(const at::Tensor& images) {
  at::Tensor x = at::relu(at::max_pool2d(conv1_->forward(images), {2, 2}));
  x = at::relu(at::max_pool2d(conv2_drop_->forward(conv2_->forward(x)), {2, 2}));
  x = at::dropout(at::relu(fc1_->forward(x.flatten(1))), 0.5, is_training());
  return at::log_softmax(fc2_->forward(x), 1);
}

PytorchMnistNetImpl::PytorchMnistNetImpl()
    : conv1_(torch::nn::Conv2dOptions(1, 32, 3)),
      conv2_(torch::nn::Conv2dOptions(32, 64, 3)),
      dropout1_(0.25),
      dropout2_(0.5),
      fc1_(9216, 128),
      fc2_(128, 10) {
  register_module("conv1", conv1_);
  register_module("conv2", conv2_);
  register_module("dropout1", dropout1_);
  register_module("dropout2", dropout2_);
  register_module("fc1", fc1_);
  register_module("fc2", fc2_);
}

at::Tensor PytorchMnistNetImpl::forward(const at::Tensor& images) {
  at::Tensor x = at::relu(conv1_->forward(images));
  x = at::max_pool2d(at::relu(conv2_->forward(x)), {2, 2});
  x = at::relu(fc1_->forward(dropout1_->forward(x).flatten(1)));
  return at::log_softmax(fc2_->forward(dropout2_->forward(x)), 1);
}

}  // namespace libtrain::models
