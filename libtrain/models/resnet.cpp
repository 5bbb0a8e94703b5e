#include <libtrain/models/resnet.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/init.h>

#include <libtrain/models/residual_blocks.hpp>

namespace libtrain::models {

namespace {

constexpr std::int64_t kGroupWidth = 64;  // of a bottleneck as wide as ResNetOptions::width says

void check(const ResNetOptions& options) {
  if (options.layers.empty() || options.layers.size() > 4) {
    throw std::invalid_argument("ResNetOptions::layers has " + std::to_string(options.layers.size()) +
                                " entries. Give 1 to 4, one for each stage.");
  }
  const std::int64_t least = std::min({*std::min_element(options.layers.begin(), options.layers.end()), options.width,
                                       options.input_channels, options.groups, options.group_width});
  if (least < 1) {
    throw std::invalid_argument(
        "ResNetOptions::layers, width, groups, group_width and input_channels must be at least 1, but one of them is " +
        std::to_string(least) + ".");
  }
  if (options.classes < 0) {
    throw std::invalid_argument("ResNetOptions::classes is " + std::to_string(options.classes) +
                                ". Give at least 1, or 0 for features without a classifier.");
  }
  if (options.block == Block::basic && (options.groups != 1 || options.group_width != kGroupWidth)) {
    throw std::invalid_argument("ResNetOptions::groups and group_width are of bottlenecks. Set Block::bottleneck.");
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    throw std::invalid_argument("ResNetOptions::dropout is " + std::to_string(options.dropout) +
                                "; it must be at least 0 and below 1.");
  }
}

ResNet with(ResNetOptions options, Block block, std::vector<std::int64_t> layers, std::int64_t groups = 1,
            std::int64_t group_width = kGroupWidth) {
  options.block = block;
  options.layers = std::move(layers);
  options.groups = groups;
  options.group_width = group_width;
  return ResNet(std::move(options));
}

ResNet small(ResNetOptions options, std::vector<std::int64_t> layers) {
  options.width = 16;
  options.stem = Stem::small;
  return with(std::move(options), Block::basic, std::move(layers));
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
  if (options.classes > 0) fc_ = register_module("fc", torch::nn::Linear(channels_, options.classes));
  initialize();
}

torch::nn::Sequential ResNetImpl::make_stage(std::int64_t blocks, std::int64_t width, std::int64_t stride) {
  torch::nn::Sequential stage;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const detail::ResidualBlockOptions options{
        .channels = channels_,
        .width = width,
        .inner_width = width * options_.group_width / kGroupWidth * options_.groups,
        .groups = options_.groups,
        .stride = i == 0 ? stride : 1,
        .norm = options_.norm};
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
  if (!options_.zero_init_residual) return;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* block = module->as<detail::BasicBlock>()) block->zero_last_norm();
    if (auto* block = module->as<detail::Bottleneck>()) block->zero_last_norm();
  }
}

at::Tensor ResNetImpl::stem(const at::Tensor& images) {
  const at::Tensor x = detail::convolve_and_rectify(*conv1_, bn1_, images);
  return options_.stem == Stem::imagenet ? at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1}) : x;
}

std::vector<at::Tensor> ResNetImpl::features(const at::Tensor& images) {
  at::Tensor x = stem(images);
  std::vector<at::Tensor> outputs;
  for (auto& stage : stages_) outputs.push_back(x = stage->forward(x));
  return outputs;
}

at::Tensor ResNetImpl::forward(const at::Tensor& images) {
  if (!fc_) throw std::logic_error("This ResNet has no classes to predict. Call features(), or give it classes.");
  at::Tensor x = stem(images);
  for (auto& stage : stages_) x = stage->forward(x);
  x = at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
  if (options_.dropout > 0) x = at::dropout(x, options_.dropout, is_training());
  return fc_->forward(x);
}

ResNet resnet18(ResNetOptions options) {
  return with(std::move(options), Block::basic, {2, 2, 2, 2});
}

ResNet resnet8(ResNetOptions options) {
  return small(std::move(options), {1, 1, 1});
}

ResNet resnet20(ResNetOptions options) {
  return small(std::move(options), {3, 3, 3});
}

ResNet resnet34(ResNetOptions options) {
  return with(std::move(options), Block::basic, {3, 4, 6, 3});
}

ResNet resnet50(ResNetOptions options) {
  return with(std::move(options), Block::bottleneck, {3, 4, 6, 3});
}

ResNet resnet101(ResNetOptions options) {
  return with(std::move(options), Block::bottleneck, {3, 4, 23, 3});
}

ResNet resnet152(ResNetOptions options) {
  return with(std::move(options), Block::bottleneck, {3, 8, 36, 3});
}

ResNet wide_resnet50_2(ResNetOptions options) {
  return with(std::move(options), Block::bottleneck, {3, 4, 6, 3}, 1, 128);
}

ResNet wide_resnet101_2(ResNetOptions options) {
  return with(std::move(options), Block::bottleneck, {3, 4, 23, 3}, 1, 128);
}

ResNet resnext50_32x4d(ResNetOptions options) {
  return with(std::move(options), Block::bottleneck, {3, 4, 6, 3}, 32, 4);
}

ResNet resnext101_32x8d(ResNetOptions options) {
  return with(std::move(options), Block::bottleneck, {3, 4, 23, 3}, 32, 8);
}

ResNet resnext101_64x4d(ResNetOptions options) {
  return with(std::move(options), Block::bottleneck, {3, 4, 23, 3}, 64, 4);
}

}  // namespace libtrain::models
