#include <libtrain/models/mask_rcnn/detail/region_proposals.hpp>

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <torch/nn/init.h>

#include <libtrain/models/mask_rcnn/detail/boxes.hpp>
#include <libtrain/models/mask_rcnn/detail/rectified_convolution.hpp>
#include <libtrain/models/mask_rcnn/operators.hpp>

namespace libtrain::models::detail {

namespace {

constexpr double kSmallestSide = 1e-3;  // pixels of a proposal

void initialize_normal(torch::nn::Conv2d& convolution) {
  torch::nn::init::normal_(convolution->weight, 0, 0.01);
  torch::nn::init::zeros_(convolution->bias);
}

// [B, A * numbers, h, w] to [B, h * w * A, numbers]; without a copy if it is laid out as channels_last.
at::Tensor by_anchor(const at::Tensor& map, std::int64_t numbers) {
  return widened(map.permute({0, 2, 3, 1}).reshape({map.size(0), -1, numbers}));
}

}  // namespace

ProposalHeadImpl::ProposalHeadImpl(std::int64_t channels, std::int64_t anchors)
    : logits_(torch::nn::Conv2dOptions(channels, anchors, 1)),
      corrections_(torch::nn::Conv2dOptions(channels, 4 * anchors, 1)) {
  torch::nn::Conv2d shared(torch::nn::Conv2dOptions(channels, channels, 3).padding(1));
  for (auto* convolution : {&shared, &logits_, &corrections_}) initialize_normal(*convolution);
  // Nested as in torchvision, where there may be several such layers: conv.0.0.weight.
  conv_->push_back(RectifiedConvolution(shared));
  register_module("conv", conv_);
  register_module("cls_logits", logits_);
  register_module("bbox_pred", corrections_);
}

std::pair<at::Tensor, at::Tensor> ProposalHeadImpl::forward(const at::Tensor& map) {
  const at::Tensor x = conv_->forward(map);
  return {by_anchor(logits_->forward(x), 1).squeeze(2), by_anchor(corrections_->forward(x), 4)};
}

RegionProposalsImpl::RegionProposalsImpl(const MaskRcnnOptions& options)
    : anchors_(options.anchors),
      options_(options.proposals),
      head_(options.pyramid_channels, std::ssize(options.anchors.ratios)) {
  register_module("head", head_);
}

AnchorPredictions RegionProposalsImpl::forward(const std::vector<at::Tensor>& maps, const ImageSize& padded) {
  AnchorPredictions predictions;
  std::vector<at::Tensor> logits, corrections;
  for (const auto& map : maps) {
    auto [of_level, corrections_of_level] = head_->forward(map);
    predictions.anchors_of_level.push_back(of_level.size(1));
    logits.push_back(std::move(of_level));
    corrections.push_back(std::move(corrections_of_level));
  }
  predictions.anchors = at::cat(make_anchors(anchors_, maps, padded));
  predictions.logits = at::cat(logits, 1);
  predictions.corrections = at::cat(corrections, 1);
  return predictions;
}

std::vector<at::Tensor> RegionProposalsImpl::propose(const AnchorPredictions& predictions,
                                                     const std::vector<ImageSize>& sizes) const {
  const at::NoGradGuard no_grad;
  const std::int64_t candidates = is_training() ? options_.candidates_training : options_.candidates;
  const std::int64_t kept = is_training() ? options_.kept_training : options_.kept;
  std::vector<at::Tensor> chosen, levels;  // of each level: numbers of anchors [B, K], and the level's number [K]
  std::int64_t first = 0;
  for (std::size_t level = 0; level < predictions.anchors_of_level.size(); ++level) {
    const std::int64_t anchors = predictions.anchors_of_level[level];
    const std::int64_t count = std::min(anchors, candidates);
    const at::Tensor best = std::get<1>(predictions.logits.narrow(1, first, anchors).topk(count, 1));
    chosen.push_back(best + first);
    levels.push_back(at::full({count}, static_cast<std::int64_t>(level), best.options()));
    first += anchors;
  }
  const at::Tensor numbers = at::cat(chosen, 1);
  const at::Tensor level_of = at::cat(levels);

  std::vector<at::Tensor> proposals;
  for (std::size_t image = 0; image < sizes.size(); ++image) {
    const auto row = static_cast<std::int64_t>(image);
    const at::Tensor number = numbers[row];
    at::Tensor boxes = BoxCoding().decode(predictions.corrections[row].index_select(0, number),
                                          predictions.anchors.index_select(0, number));
    boxes = clip_boxes(boxes, sizes[image]);
    const at::Tensor scores = predictions.logits[row].index_select(0, number).sigmoid();
    const at::Tensor large = are_as_large_as(boxes, kSmallestSide).nonzero().squeeze(1);
    boxes = boxes.index_select(0, large);
    const at::Tensor keep =
        nms(boxes, scores.index_select(0, large), level_of.index_select(0, large), options_.nms_threshold);
    proposals.push_back(boxes.index_select(0, keep.slice(0, 0, kept)));
  }
  return proposals;
}

ProposalLosses RegionProposalsImpl::loss_sums(const AnchorPredictions& predictions,
                                              const std::vector<ObjectTargets>& targets, std::int64_t& sampled) const {
  const std::int64_t anchors = predictions.anchors.size(0);
  const MatchOptions matching{.at_least = options_.at_least, .below = options_.below, .keep_best = true};
  std::vector<at::Tensor> samples, labels, positives, wanted;
  for (std::size_t image = 0; image < targets.size(); ++image) {
    const at::Tensor& boxes = targets[image].boxes;
    const std::int64_t first = static_cast<std::int64_t>(image) * anchors;
    const at::Tensor matches = match_boxes(boxes, predictions.anchors, matching);
    // -1 for what is neither positive nor negative.
    const at::Tensor label = matches.ge(0).to(at::kLong) - matches.eq(kBetween).to(at::kLong);
    const at::Tensor sample = sample_labels(label, options_.samples, options_.positive_fraction, targets[image].seed);
    const at::Tensor sample_label = label.index_select(0, sample);
    const at::Tensor positive = sample.index_select(0, sample_label.nonzero().squeeze(1));
    samples.push_back(sample + first);
    labels.push_back(sample_label);
    positives.push_back(positive + first);
    wanted.push_back(BoxCoding().encode(boxes.index_select(0, matches.index_select(0, positive)),
                                        predictions.anchors.index_select(0, positive)));
  }
  const at::Tensor all = at::cat(samples);
  sampled += all.size(0);
  const at::Tensor logits = predictions.logits.view(-1).index_select(0, all);
  return {.objectness = at::binary_cross_entropy_with_logits(logits, at::cat(labels).to(logits.scalar_type()), {}, {},
                                                             at::Reduction::Sum),
          .boxes =
              box_loss_sum(predictions.corrections.view({-1, 4}).index_select(0, at::cat(positives)), at::cat(wanted))};
}

}  // namespace libtrain::models::detail
