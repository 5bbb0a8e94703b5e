#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace libtrain::models {

/// A network that classifies images.
class ImageClassifier : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  /// Logits, float [N, classes], of images [N, C, H, W].
  virtual at::Tensor forward(const at::Tensor& images) = 0;
};

}  // namespace libtrain::models
