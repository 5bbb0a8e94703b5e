#include <libtrain/models/mask_rcnn/detail/box_head.hpp>

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <libtrain/models/mask_rcnn/detail/boxes.hpp>
#include <libtrain/models/mask_rcnn/operators.hpp>

namespace libtrain::models::detail {

namespace {

constexpr double kSmallestDetection = 1e-2;  // pixels of a side
constexpr std::array<double, 4> kWeights = {10, 10, 5, 5};

}  // namespace

Regions make_regions(const std::vector<at::Tensor>& boxes_of_images) {
  std::vector<at::Tensor> images;
  for (const auto& boxes : boxes_of_images) {
    images.push_back(
        at::full({boxes.size(0)}, static_cast<std::int64_t>(images.size()), boxes.options().dtype(at::kLong)));
  }
  return {.boxes = at::cat(boxes_of_images), .images = at::cat(images)};
}

BoxHeadImpl::BoxHeadImpl(const MaskRcnnOptions& options)
    : options_(options.boxes),
      fc6_(options.pyramid_channels * options_.pooled * options_.pooled, options_.hidden),
      fc7_(options_.hidden, options_.hidden),
      classes_(options_.hidden, options.classes),
      corrections_(options_.hidden, 4 * options.classes) {}

void BoxHeadImpl::register_in(torch::nn::Module& parent) {
  const auto head = parent.register_module("box_head", std::make_shared<torch::nn::Module>());
  head->register_module("fc6", fc6_);
  head->register_module("fc7", fc7_);
  const auto predictor = parent.register_module("box_predictor", std::make_shared<torch::nn::Module>());
  predictor->register_module("cls_score", classes_);
  predictor->register_module("bbox_pred", corrections_);
}

RegionSamples BoxHeadImpl::sample(const std::vector<at::Tensor>& proposals,
                                  const std::vector<ObjectTargets>& targets) const {
  const MatchOptions matching{.at_least = options_.at_least, .below = options_.below};
  std::vector<at::Tensor> regions, labels, matches, boxes;
  for (std::size_t image = 0; image < targets.size(); ++image) {
    const ObjectTargets& target = targets[image];
    const at::Tensor candidates = at::cat({proposals[image], target.boxes});
    const at::Tensor match = match_boxes(target.boxes, candidates, matching);
    const at::Tensor object = match.clamp_min(0);
    const bool has_objects = target.boxes.size(0) > 0;
    at::Tensor label = has_objects ? target.labels.index_select(0, object) : at::zeros_like(match);
    label = label.masked_fill(match.eq(kBackground), 0).masked_fill(match.eq(kBetween), -1);
    // Another choice than that of the anchors.
    const at::Tensor chosen = sample_labels(label, options_.samples, options_.positive_fraction, ~target.seed);
    regions.push_back(candidates.index_select(0, chosen));
    labels.push_back(label.index_select(0, chosen));
    matches.push_back(object.index_select(0, chosen));
    boxes.push_back(has_objects ? target.boxes.index_select(0, matches.back()) : regions.back());
  }
  return {.regions = make_regions(regions),
          .labels = at::cat(labels),
          .matches = at::cat(matches),
          .boxes = at::cat(boxes)};
}

std::pair<at::Tensor, at::Tensor> BoxHeadImpl::forward(const std::vector<at::Tensor>& maps, const Regions& regions) {
  const at::Tensor crops = roi_align(maps, regions.boxes, regions.images, {.output_size = options_.pooled});
  const at::Tensor x = fc7_->forward(fc6_->forward(crops.flatten(1)).relu_()).relu_();
  return {widened(classes_->forward(x)),
          widened(corrections_->forward(x)).view({x.size(0), classes_->options.out_features(), 4})};
}

BoxLosses BoxHeadImpl::loss_sums(const at::Tensor& logits, const at::Tensor& corrections,
                                 const RegionSamples& samples) const {
  const at::Tensor positive = samples.labels.nonzero().squeeze(1);
  const at::Tensor correction =
      corrections.flatten(0, 1).index_select(0, positive * logits.size(1) + samples.labels.index_select(0, positive));
  const at::Tensor wanted = BoxCoding{kWeights}.encode(samples.boxes.index_select(0, positive),
                                                       samples.regions.boxes.index_select(0, positive));
  return {.classifier = at::cross_entropy_loss(logits, samples.labels, {}, at::Reduction::Sum),
          .boxes = box_loss_sum(correction, wanted)};
}

std::vector<Detections> BoxHeadImpl::detect(const at::Tensor& logits, const at::Tensor& corrections,
                                            const std::vector<at::Tensor>& proposals,
                                            const std::vector<ImageSize>& sizes) const {
  std::vector<Detections> results;
  std::int64_t first = 0;
  for (std::size_t image = 0; image < proposals.size(); ++image) {
    const std::int64_t count = proposals[image].size(0);
    const at::Tensor probabilities = logits.narrow(0, first, count).softmax(1);
    // Region and class of what may be a detection; few of them are, so that few boxes are computed.
    const at::Tensor places = probabilities.slice(1, 1).gt(options_.score_threshold).nonzero();
    const at::Tensor region = places.select(1, 0);
    at::Tensor labels = places.select(1, 1) + 1;
    const at::Tensor entry = region * logits.size(1) + labels;
    at::Tensor scores = probabilities.flatten().index_select(0, entry);
    at::Tensor boxes =
        BoxCoding{kWeights}.decode(corrections.narrow(0, first, count).flatten(0, 1).index_select(0, entry),
                                   proposals[image].index_select(0, region));
    boxes = clip_boxes(boxes, sizes[image]);
    const at::Tensor large = are_as_large_as(boxes, kSmallestDetection).nonzero().squeeze(1);
    boxes = boxes.index_select(0, large);
    scores = scores.index_select(0, large);
    labels = labels.index_select(0, large);
    const at::Tensor keep = nms(boxes, scores, labels, options_.nms_threshold).slice(0, 0, options_.detections);
    results.push_back({.boxes = boxes.index_select(0, keep),
                       .labels = labels.index_select(0, keep),
                       .scores = scores.index_select(0, keep),
                       .masks = {}});
    first += count;
  }
  return results;
}

}  // namespace libtrain::models::detail
