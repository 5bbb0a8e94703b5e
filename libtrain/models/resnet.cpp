#include <libtrain/models/resnet.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/init.h>

#include <libtrain/models/residual_blocks.hpp>

namespace libtrain::models {

namespace {

void check(const ResNetOptions& options) {
  if (options.layers.empty() || options.layers.size() > 4) {
    throw std::invalid_argument("ResNetOptions::layers has " + std::to_string(options.layers.size()) +
                                " entries. Give 1 to 4, one for each stage.");
  }
  const std::int64_t least = std::min({*std::min_element(options.layers.begin(), options.layers.end()), options.classes,
                                       options.width, options.input_channels});
  if (least < 1) {
    throw std::invalid_argument(
        "ResNetOptions::layers, classes, width and input_channels must be at least 1, but one of them is " +
        std::to_string(least) + ".");
  }
}

}  // namespace

ResNetImpl::ResNetImpl(const ResNetOptions& options) : options_(options), channels_(options.width) {
  check(options);
  const bool small = options.stem == Stem::small;
  conv1_ =
      register_module("conv1", detail::convolution(options.input_channels, channels_, small ? 3 : 7, small ? 1 : 2));
  bn1_ = detail::make_norm(options.norm, channels_);
  register_module("bn1", bn1_.ptr());
  std::int64_t width = options.width;
  for (std::size_t i = 0; i < options.layers.size(); ++i, width *= 2) {
    stages_.push_back(
        register_module("layer" + std::to_string(i + 1), make_stage(options.layers[i], width, i == 0 ? 1 : 2)));
  }
  fc_ = register_module("fc", torch::nn::Linear(channels_, options.classes));
  initialize();
}

torch::nn::Sequential ResNetImpl::make_stage(std::int64_t blocks, std::int64_t width, std::int64_t stride) {
  torch::nn::Sequential stage;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const detail::ResidualBlockOptions options{
        .channels = channels_, .width = width, .stride = i == 0 ? stride : 1, .norm = options_.norm};
    if (options_.block == Block::basic) {
      stage->push_back(detail::BasicBlock(options));
      channels_ = width * detail::BasicBlockImpl::kExpansion;
    } else {
      stage->push_back(detail::Bottleneck(options));
      channels_ = width * detail::BottleneckImpl::kExpansion;
    }
  }
  return stage;
}

void ResNetImpl::initialize() {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* convolution = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
}

at::Tensor ResNetImpl::forward(const at::Tensor& images) {
  at::Tensor x = bn1_.forward(conv1_->forward(images)).relu_();
  if (options_.stem == Stem::imagenet) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (auto& stage : stages_) x = stage->forward(x);
  x = at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
  return fc_->forward(x);
}

ResNet resnet18(ResNetOptions options) {
  options.block = Block::basic;
  options.layers = {2, 2, 2, 2};
  return ResNet(std::move(options));
}

ResNet resnet50(ResNetOptions options) {
  options.block = Block::bottleneck;
  options.layers = {3, 4, 6, 3};
  return ResNet(std::move(options));
}

}  // namespace libtrain::models
