#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <libtrain/models/image_classifier.hpp>

namespace libtrain::models {

/// The residual block: two 3x3 convolutions, or 1x1, 3x3 and 1x1 with four times as many channels at the end.
enum class Block { basic, bottleneck };

/// The layers before the first stage.
enum class Stem {
  imagenet,  ///< 7x7 convolution with stride 2 and 3x3 max-pooling with stride 2
  small,     ///< 3x3 convolution with stride 1 and no pooling, for small images
};

struct ResNetOptions {
  Block block = Block::basic;                       ///< set by the functions below
  std::vector<std::int64_t> layers = {2, 2, 2, 2};  ///< blocks of each stage, 1 to 4 stages; set by the functions below
  std::int64_t classes = 1000;  ///< 0: no classifier, for a network of which only features() is used
  /// Channels of the first stage (before a bottleneck's factor of 4), doubled in each next one.
  std::int64_t width = 64;
  /// Groups of a bottleneck's 3x3 convolution, which has groups * group_width / 64 times as many channels as `width`:
  /// 32 groups of width 4 are ResNeXt's, 1 of 128 a wide ResNet's. Blocks of Block::basic need 1 and 64.
  std::int64_t groups = 1;
  std::int64_t group_width = 64;
  std::int64_t input_channels = 3;
  Stem stem = Stem::imagenet;
  /// Whether the scale of each block's last norm begins with 0 instead of 1, so that blocks begin as identities: P.
  /// Goyal et al., Accurate, Large Minibatch SGD, arXiv:1706.02677, section 5.1.
  bool zero_init_residual = false;
  double dropout = 0;  ///< probability with which the last layer ignores each of its inputs in training, [0, 1)
  /// Creates each norm, of so many channels, such as the function that libtrain::sync_batch_norm_factory returns; a
  /// norm must register its state as batch norm does to keep torchvision's names. Empty: torch::nn::BatchNorm2d.
  std::function<torch::nn::AnyModule(std::int64_t channels)> norm = {};
};

/// Residual network for image classification: K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016;
/// with groups, S. Xie et al., Aggregated Residual Transformations for Deep Neural Networks, CVPR 2017; with wider
/// bottlenecks, S. Zagoruyko and N. Komodakis, Wide Residual Networks, BMVC 2016.
///
/// Names, shapes, order and initialisation of parameters and buffers are torchvision's, so that its weights load by
/// name; the stride of a bottleneck is in its 3x3 convolution, as in torchvision. Each stage but the first halves the
/// image.
class ResNetImpl : public ImageClassifier {
 public:
  /// Throws std::invalid_argument for other than 1 to 4 stages, or a number out of range.
  explicit ResNetImpl(const ResNetOptions& options = {});

  /// Throws std::logic_error without classes.
  at::Tensor forward(const at::Tensor& images) override;

  /// The output of each stage, the finest first: `width` channels (times a bottleneck's factor of 4) of the image's
  /// size divided by 4 (1 with Stem::small), and in each next one twice as many channels of half the size.
  std::vector<at::Tensor> features(const at::Tensor& images);

  const ResNetOptions& options() const { return options_; }

 private:
  torch::nn::Sequential make_stage(std::int64_t blocks, std::int64_t width, std::int64_t stride);
  void initialize();
  at::Tensor stem(const at::Tensor& images);

  const ResNetOptions options_;
  std::int64_t channels_;  // of the output of the stages created so far
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::AnyModule bn1_;
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

/// As in torchvision, with so many parameters for 1,000 classes. `block`, `layers`, `groups` and `group_width` of the
/// options are replaced.
ResNet resnet18(ResNetOptions options = {});          // 11,689,512
ResNet resnet34(ResNetOptions options = {});          // 21,797,672
ResNet resnet50(ResNetOptions options = {});          // 25,557,032
ResNet resnet101(ResNetOptions options = {});         // 44,549,160
ResNet resnet152(ResNetOptions options = {});         // 60,192,808
ResNet wide_resnet50_2(ResNetOptions options = {});   // 68,883,240
ResNet wide_resnet101_2(ResNetOptions options = {});  // 126,886,696
ResNet resnext50_32x4d(ResNetOptions options = {});   // 25,028,904
ResNet resnext101_32x8d(ResNetOptions options = {});  // 88,791,336
ResNet resnext101_64x4d(ResNetOptions options = {});  // 83,455,272

/// For images of 32x32 pixels such as CIFAR-10's: section 4.2 of the paper, of 8 and 20 layers, but with 1x1
/// convolutions where the number of channels grows. `width`, `stem` and what the functions above replace are replaced.
/// With so many parameters for 10 classes.
ResNet resnet8(ResNetOptions options = {});   // 78,042
ResNet resnet20(ResNetOptions options = {});  // 272,474

}  // namespace libtrain::models
