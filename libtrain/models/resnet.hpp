#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace libtrain::models {

/// The residual block: two 3x3 convolutions, or 1x1, 3x3 and 1x1 with four times as many channels at the end.
enum class Block { basic, bottleneck };

/// The layers before the first stage.
enum class Stem {
  imagenet,  ///< 7x7 convolution with stride 2 and 3x3 max-pooling with stride 2
  small,     ///< 3x3 convolution with stride 1 and no pooling, for small images
};

struct ResNetOptions {
  Block block = Block::basic;                       ///< set by resnet18 and resnet50
  std::vector<std::int64_t> layers = {2, 2, 2, 2};  ///< blocks of each stage, 1 to 4 stages; set by resnet18, resnet50
  std::int64_t classes = 1000;
  /// Channels of the first stage (before a bottleneck's factor of 4), doubled in each next one.
  std::int64_t width = 64;
  std::int64_t input_channels = 3;
  Stem stem = Stem::imagenet;
  /// Creates each norm, of so many channels, such as the function that libtrain::sync_batch_norm_factory returns; a
  /// norm must register its state as batch norm does to keep torchvision's names. Empty: torch::nn::BatchNorm2d.
  std::function<torch::nn::AnyModule(std::int64_t channels)> norm = {};
};

/// Residual network for image classification: K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
///
/// Names, shapes, order and initialisation of parameters and buffers are torchvision's, so that its weights load by
/// name; the stride of a bottleneck is in its 3x3 convolution, as in torchvision. Each stage but the first halves the
/// image.
class ResNetImpl : public torch::nn::Module {
 public:
  /// Throws std::invalid_argument for other than 1 to 4 stages, or a number below 1.
  explicit ResNetImpl(const ResNetOptions& options = {});

  /// Logits, float [N, classes], of images [N, input_channels, H, W].
  at::Tensor forward(const at::Tensor& images);

  const ResNetOptions& options() const { return options_; }

 private:
  torch::nn::Sequential make_stage(std::int64_t blocks, std::int64_t width, std::int64_t stride);
  void initialize();

  ResNetOptions options_;
  std::int64_t channels_;  // of the output of the stages created so far
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::AnyModule bn1_;
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

/// ResNet-18 and ResNet-50 as in torchvision: 11,689,512 and 25,557,032 parameters with 1,000 classes. `block` and
/// `layers` of the options are replaced.
ResNet resnet18(ResNetOptions options = {});
ResNet resnet50(ResNetOptions options = {});

}  // namespace libtrain::models
