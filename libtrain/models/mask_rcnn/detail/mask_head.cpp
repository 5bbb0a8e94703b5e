#include <libtrain/models/mask_rcnn/detail/mask_head.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/nn/init.h>

#include <libtrain/models/mask_rcnn/detail/boxes.hpp>
#include <libtrain/models/mask_rcnn/detail/rectified_convolution.hpp>
#include <libtrain/models/mask_rcnn/operators.hpp>

namespace libtrain::models::detail {

namespace {

void initialize_for_relu(const at::Tensor& weight) {
  torch::nn::init::kaiming_normal_(weight, 0, torch::kFanOut, torch::kReLU);
}

}  // namespace

MaskHeadImpl::MaskHeadImpl(const MaskRcnnOptions& options)
    : pooled_(options.masks->pooled),
      upsampling_(torch::nn::ConvTranspose2dOptions(
                      options.masks->channels.empty() ? options.pyramid_channels : options.masks->channels.back(),
                      options.masks->upsampled_channels, 2)
                      .stride(2)),
      logits_(torch::nn::Conv2dOptions(options.masks->upsampled_channels, options.classes, 1)) {
  std::int64_t in = options.pyramid_channels;
  for (const auto out : options.masks->channels) {
    torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(in, out, 3).padding(1));
    initialize_for_relu(convolution->weight);
    torch::nn::init::zeros_(convolution->bias);
    convolutions_->push_back(RectifiedConvolution(convolution));
    in = out;
  }
  initialize_for_relu(upsampling_->weight);
  initialize_for_relu(logits_->weight);
}

void MaskHeadImpl::register_in(torch::nn::Module& parent) {
  parent.register_module("mask_head", convolutions_);
  const auto predictor = parent.register_module("mask_predictor", std::make_shared<torch::nn::Module>());
  predictor->register_module("conv5_mask", upsampling_);
  predictor->register_module("mask_fcn_logits", logits_);
}

at::Tensor MaskHeadImpl::forward(const std::vector<at::Tensor>& maps, const Regions& regions,
                                 const at::Tensor& labels) {
  at::Tensor x = roi_align(maps, regions.boxes, regions.images, {.output_size = pooled_});
  if (!convolutions_->is_empty()) x = convolutions_->forward(x);
  x = upsampling_->forward(x).relu_();
  const std::int64_t side = x.size(2);
  // The last layer, of one class: a product of its weights [1, C] and the region's [C, side * side].
  const at::Tensor weights = logits_->weight.flatten(1).index_select(0, labels).to(x.scalar_type());
  const at::Tensor logits = widened(at::bmm(weights.unsqueeze(1), x.flatten(2)).squeeze(1));
  return (logits + logits_->bias.index_select(0, labels).unsqueeze(1)).view({-1, side, side});
}

at::Tensor MaskHeadImpl::loss_sum(const std::vector<at::Tensor>& maps, const RegionSamples& samples,
                                  const std::vector<ObjectTargets>& targets, std::int64_t& positives) {
  const at::Tensor positive = samples.labels.nonzero().squeeze(1);
  const Regions regions{.boxes = samples.regions.boxes.index_select(0, positive),
                        .images = samples.regions.images.index_select(0, positive)};
  const at::Tensor logits = forward(maps, regions, samples.labels.index_select(0, positive));
  const at::Tensor matches = samples.matches.index_select(0, positive);
  std::vector<at::Tensor> wanted;  // by image, which is the order of the samples
  for (std::size_t image = 0; image < targets.size(); ++image) {
    const at::Tensor here = regions.images.eq(static_cast<std::int64_t>(image)).nonzero().squeeze(1);
    if (here.size(0) == 0) continue;
    wanted.push_back(mask_targets(targets[image].masks, regions.boxes.index_select(0, here),
                                  matches.index_select(0, here), logits.size(1)));
  }
  if (wanted.empty()) return logits.sum();  // of nothing: 0
  positives += logits.size(0);
  const at::Tensor sum = at::binary_cross_entropy_with_logits(logits, at::cat(wanted).to(logits.scalar_type()), {}, {},
                                                              at::Reduction::Sum);
  return sum / (logits.size(1) * logits.size(2));
}

}  // namespace libtrain::models::detail
