#include <libtrain/models/mask_rcnn/detail/pyramid_backbone.hpp>

#include <algorithm>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>

#include <libtrain/models/frozen_batch_norm.hpp>

namespace libtrain::models::detail {

namespace {

torch::nn::Sequential pyramid_convolution(std::int64_t in, std::int64_t out, std::int64_t kernel) {
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(in, out, kernel).padding(kernel / 2));
  torch::nn::init::kaiming_uniform_(convolution->weight, 1);
  torch::nn::init::zeros_(convolution->bias);
  return torch::nn::Sequential(convolution);
}

ResNetOptions body_options(const MaskRcnnOptions& options) {
  ResNetOptions body;
  body.block = options.block;
  body.layers = options.layers;
  body.width = options.width;
  body.classes = 0;
  body.norm = options.frozen_batch_norm ? frozen_batch_norm_factory(options.norm_epsilon) : options.norm;
  return body;
}

std::vector<std::int64_t> stage_channels(const MaskRcnnOptions& options) {
  std::vector<std::int64_t> channels;
  std::int64_t width = options.width * (options.block == Block::bottleneck ? 4 : 1);
  for (std::size_t stage = 0; stage < options.layers.size(); ++stage, width *= 2) channels.push_back(width);
  return channels;
}

// The beginnings of the names of the parameters that keep their values.
std::vector<std::string> frozen_names(std::int64_t trainable_stages) {
  std::vector<std::string> names = {"bn1", "conv1", "layer1", "layer2", "layer3", "layer4"};
  names.resize(static_cast<std::size_t>(trainable_stages == 5 ? 0 : 6 - trainable_stages));
  return names;
}

}  // namespace

FeaturePyramidImpl::FeaturePyramidImpl(const std::vector<std::int64_t>& channels_of_stages, std::int64_t channels) {
  for (const auto in : channels_of_stages) {
    projections_->push_back(pyramid_convolution(in, channels, 1));
    outputs_->push_back(pyramid_convolution(channels, channels, 3));
  }
  register_module("inner_blocks", projections_);
  register_module("layer_blocks", outputs_);
}

std::vector<at::Tensor> FeaturePyramidImpl::forward(const std::vector<at::Tensor>& stages) {
  std::vector<at::Tensor> maps(stages.size());
  at::Tensor coarser;
  for (std::size_t level = stages.size(); level-- > 0;) {
    at::Tensor map = projections_->ptr(level)->as<torch::nn::Sequential>()->forward(stages[level]);
    if (coarser.defined()) map = map + at::upsample_nearest2d(coarser, map.sizes().slice(2));
    coarser = map;
    maps[level] = outputs_->ptr(level)->as<torch::nn::Sequential>()->forward(map);
  }
  return maps;
}

PyramidBackboneImpl::PyramidBackboneImpl(const MaskRcnnOptions& options)
    : body_(body_options(options)), pyramid_(stage_channels(options), options.pyramid_channels) {
  register_module("body", body_);
  register_module("fpn", pyramid_);
  for (auto& parameter : body_->named_parameters()) {
    const auto frozen = frozen_names(options.trainable_stages);
    const bool is_frozen = std::any_of(frozen.begin(), frozen.end(),
                                       [&](const std::string& name) { return parameter.key().starts_with(name); });
    if (is_frozen) parameter.value().set_requires_grad(false);
  }
}

std::vector<at::Tensor> PyramidBackboneImpl::forward(const at::Tensor& images) {
  auto maps = pyramid_->forward(body_->features(images));
  maps.push_back(at::max_pool2d(maps.back(), {1, 1}, {2, 2}));
  return maps;
}

}  // namespace libtrain::models::detail
