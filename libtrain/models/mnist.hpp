#pragma once

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <libtrain/models/image_classifier.hpp>

namespace libtrain::models {

/// The network of Horovod's MNIST example, and of PyTorch's until 2019: two 5x5 convolutions of 10 and 20 channels, and
/// 21,840 parameters. For images [N, 1, 28, 28]. Names and initialisation are those of the example. Returns
/// log-probabilities, which are logits, too.
class HorovodMnistNetImpl : public ImageClassifier {
 public:
  HorovodMnistNetImpl();
  at::Tensor forward(const at::Tensor& images) override;

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Dropout2d conv2_drop_;
  torch::nn::Linear fc1_, fc2_;
};
TORCH_MODULE(HorovodMnistNet);

/// The network of PyTorch's MNIST example: two 3x3 convolutions of 32 and 64 channels, and 1,199,882 parameters. As
/// above.
class PytorchMnistNetImpl : public ImageClassifier {
 public:
  PytorchMnistNetImpl();
  at::Tensor forward(const at::Tensor& images) override;

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Dropout dropout1_, dropout2_;
  torch::nn::Linear fc1_, fc2_;
};
TORCH_MODULE(PytorchMnistNet);

}  // namespace libtrain::models
