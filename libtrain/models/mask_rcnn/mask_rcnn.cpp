#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <libtrain/base/splitmix.hpp>
#include <libtrain/models/mask_rcnn/detail/box_head.hpp>
#include <libtrain/models/mask_rcnn/detail/mask_head.hpp>
#include <libtrain/models/mask_rcnn/detail/pyramid_backbone.hpp>
#include <libtrain/models/mask_rcnn/detail/region_proposals.hpp>

namespace libtrain::models {

namespace {

void require(bool is_right, const std::string& what) {
  if (!is_right) throw std::invalid_argument(what);
}

const MaskRcnnOptions& checked(const MaskRcnnOptions& options) {
  require(options.classes >= 2, "MaskRcnnOptions::classes is " + std::to_string(options.classes) +
                                    ". Give the background and at least one class: 2.");
  require(options.trainable_stages >= 0 && options.trainable_stages <= 5,
          "MaskRcnnOptions::trainable_stages is " + std::to_string(options.trainable_stages) + ". Give 0 to 5.");
  require(options.layers.size() == 4, "MaskRcnnOptions::layers has " + std::to_string(options.layers.size()) +
                                          " entries. Give 4, for stages of strides 4 to 32.");
  require(options.anchors.sizes.size() == 5 && !options.anchors.ratios.empty(),
          "MaskRcnnOptions::anchors needs 5 sizes, one for each level, and at least one ratio.");
  const auto& [proposals, boxes, masks] = std::tie(options.proposals, options.boxes, options.masks);
  std::int64_t least = std::min({options.pyramid_channels, boxes.pooled, boxes.hidden, boxes.samples, boxes.detections,
                                 proposals.samples, proposals.candidates, proposals.candidates_training, proposals.kept,
                                 proposals.kept_training});
  if (masks) {
    least = std::min({least, masks->pooled, masks->upsampled_channels});
    for (const auto channels : masks->channels) least = std::min(least, channels);
  }
  require(least >= 1, "MaskRcnnOptions: a number of channels, samples or boxes is " + std::to_string(least) +
                          ". It must be at least 1.");
  return options;
}

void check(const ObjectTargets& target, const std::string& image, std::int64_t classes, bool with_masks) {
  const std::int64_t count = target.boxes.size(0);
  require(target.boxes.dim() == 2 && target.boxes.size(1) == 4 && target.boxes.is_floating_point(),
          image + " needs boxes float [N, 4].");
  require(target.labels.dim() == 1 && target.labels.size(0) == count && target.labels.scalar_type() == at::kLong,
          image + " has " + std::to_string(count) + " boxes and needs as many labels, int64.");
  require(!with_masks || (target.masks.defined() && target.masks.dim() == 3 && target.masks.size(0) == count &&
                          target.masks.scalar_type() == at::kByte),
          image + " has " + std::to_string(count) + " boxes and needs as many masks, uint8 [N, H, W].");
  if (count == 0) return;
  require(target.labels.ge(1).logical_and(target.labels.lt(classes)).all().item<bool>(),
          image + " has a label that is not from 1 to " + std::to_string(classes - 1) + ".");
  const auto are_sound = target.boxes.slice(1, 2).gt(target.boxes.slice(1, 0, 2)).all();
  require(are_sound.logical_and(target.boxes.isfinite().all()).item<bool>(),
          image + " has a box without a positive, finite width and height. Leave such objects out.");
}

MaskRcnn with_body(MaskRcnnOptions options, Block block, std::vector<std::int64_t> layers, std::int64_t width) {
  options.block = block;
  options.layers = std::move(layers);
  options.width = width;
  return MaskRcnn(std::move(options));
}

}  // namespace

at::Tensor MaskRcnnLosses::sum() const {
  const at::Tensor without_masks = objectness + proposal_boxes + classifier + boxes;
  return masks.defined() ? without_masks + masks : without_masks;
}

MaskRcnnImpl::MaskRcnnImpl(const MaskRcnnOptions& options)
    : options_(checked(options)),
      backbone_(std::make_shared<detail::PyramidBackboneImpl>(options)),
      proposals_(std::make_shared<detail::RegionProposalsImpl>(options)),
      box_head_(std::make_shared<detail::BoxHeadImpl>(options)) {
  register_module("backbone", backbone_);
  register_module("rpn", proposals_);
  const auto heads = register_module("roi_heads", std::make_shared<torch::nn::Module>());
  box_head_->register_in(*heads);
  if (!options.masks) return;
  mask_head_ = std::make_shared<detail::MaskHeadImpl>(options);
  mask_head_->register_in(*heads);
}

MaskRcnnLosses MaskRcnnImpl::losses(const ImageBatch& batch, const std::vector<ObjectTargets>& targets,
                                    const AverageCounts& average) {
  require(targets.size() == batch.sizes.size() && batch.images.size(0) == std::ssize(batch.sizes),
          "Mask R-CNN was given " + std::to_string(batch.images.size(0)) + " images, " +
              std::to_string(batch.sizes.size()) + " sizes and " + std::to_string(targets.size()) +
              " targets. Give one of each for an image.");
  require(!targets.empty(),
          "Mask R-CNN was given no images. A rank that has none in a step calls GradientSynchronizer::join() instead.");
  for (std::size_t image = 0; image < targets.size(); ++image) {
    check(targets[image], "Image " + std::to_string(image) + " of the batch", options_.classes, mask_head_ != nullptr);
  }
  auto maps = backbone_->forward(batch.images);
  const auto anchors = proposals_->forward(maps, {batch.images.size(2), batch.images.size(3)});
  std::int64_t sampled = 0;
  const auto proposal_sums = proposals_->loss_sums(anchors, targets, sampled);
  const auto samples = box_head_->sample(proposals_->propose(anchors, batch.sizes), targets);
  maps.pop_back();  // the level that only proposes
  const auto [logits, corrections] = box_head_->forward(maps, samples.regions);
  const auto box_sums = box_head_->loss_sums(logits, corrections, samples);
  std::int64_t positives = 0;
  const at::Tensor mask_sum = mask_head_ ? mask_head_->loss_sum(maps, samples, targets, positives) : at::Tensor();

  at::Tensor counts = at::tensor({sampled, samples.labels.size(0), positives}).to(at::kFloat);
  counts = counts.to(logits.device());
  if (average) counts = average(counts);
  counts = counts.masked_fill(counts.eq(0), 1);  // of nothing: 0 divided by 1
  return {.objectness = proposal_sums.objectness / counts[0],
          .proposal_boxes = proposal_sums.boxes / counts[0],
          .classifier = box_sums.classifier / counts[1],
          .boxes = box_sums.boxes / counts[1],
          .masks = mask_head_ ? mask_sum / counts[2] : at::Tensor()};
}

std::vector<Detections> MaskRcnnImpl::detect(const ImageBatch& batch) {
  require(batch.images.size(0) == std::ssize(batch.sizes),
          "Mask R-CNN was given " + std::to_string(batch.images.size(0)) + " images and " +
              std::to_string(batch.sizes.size()) + " sizes. Give one for each image.");
  if (batch.sizes.empty()) return {};
  // The CPU's convolutions are a fifth faster in this layout, also in float32.
  const bool is_faster_reordered = batch.images.is_cpu() && !c10::GradMode::is_enabled();
  auto maps =
      backbone_->forward(is_faster_reordered ? batch.images.contiguous(at::MemoryFormat::ChannelsLast) : batch.images);
  const auto anchors = proposals_->forward(maps, {batch.images.size(2), batch.images.size(3)});
  const auto proposals = proposals_->propose(anchors, batch.sizes);
  maps.pop_back();
  const auto [logits, corrections] = box_head_->forward(maps, detail::make_regions(proposals));
  auto detections = box_head_->detect(logits, corrections, proposals, batch.sizes);
  if (!mask_head_) return detections;
  std::vector<at::Tensor> boxes, labels;
  std::vector<std::int64_t> counts;
  for (const auto& of_image : detections) {
    boxes.push_back(of_image.boxes);
    labels.push_back(of_image.labels);
    counts.push_back(of_image.labels.size(0));
  }
  const at::Tensor masks = mask_head_->forward(maps, detail::make_regions(boxes), at::cat(labels)).sigmoid();
  const auto of_images = masks.split_with_sizes(counts);
  for (std::size_t image = 0; image < detections.size(); ++image) detections[image].masks = of_images[image];
  return detections;
}

std::uint64_t sampling_seed(std::uint64_t run, std::int64_t step, std::int64_t image) {
  using libtrain::detail::combine_keys;
  return combine_keys(combine_keys(run, static_cast<std::uint64_t>(step)), static_cast<std::uint64_t>(image));
}

MaskRcnn mask_rcnn_resnet50_fpn(MaskRcnnOptions options) {
  return with_body(std::move(options), Block::bottleneck, {3, 4, 6, 3}, 64);
}

MaskRcnn mask_rcnn_resnet101_fpn(MaskRcnnOptions options) {
  return with_body(std::move(options), Block::bottleneck, {3, 4, 23, 3}, 64);
}

MaskRcnn mask_rcnn_tiny(MaskRcnnOptions options) {
  options.frozen_batch_norm = false;
  options.trainable_stages = 5;
  options.pyramid_channels = 32;
  options.anchors.sizes = {8, 16, 32, 64, 128};
  options.proposals.samples = 64;
  options.proposals.candidates_training = options.proposals.candidates = 256;
  options.proposals.kept_training = options.proposals.kept = 128;
  options.boxes.hidden = 128;
  options.boxes.samples = 64;
  if (options.masks) options.masks = {.channels = {32, 32}, .upsampled_channels = 32};
  return with_body(std::move(options), Block::basic, {1, 1, 1, 1}, 16);
}

std::vector<std::string> mask_rcnn_names() {
  return {"resnet50", "resnet101", "tiny"};
}

MaskRcnn make_mask_rcnn(const std::string& name, MaskRcnnOptions options) {
  if (name == "resnet50") return mask_rcnn_resnet50_fpn(std::move(options));
  if (name == "resnet101") return mask_rcnn_resnet101_fpn(std::move(options));
  if (name == "tiny") return mask_rcnn_tiny(std::move(options));
  throw std::invalid_argument("There is no Mask R-CNN '" + name + "'. There are resnet50, resnet101 and tiny.");
}

std::vector<std::pair<std::string, std::string>> renamed_mask_rcnn_tensors() {
  std::vector<std::pair<std::string, std::string>> names;
  const auto add = [&](const std::string& from, const std::string& to) {
    for (const char* kind : {".weight", ".bias"}) names.emplace_back(from + kind, to + kind);
  };
  add("rpn.head.conv", "rpn.head.conv.0.0");
  for (int k = 0; k < 4; ++k) {
    const std::string number = std::to_string(k);
    for (const char* part : {"inner_blocks.", "layer_blocks."}) {
      const std::string old = std::string("backbone.fpn.") + part + number;
      add(old, old + ".0");
    }
    add("roi_heads.mask_head.mask_fcn" + std::to_string(k + 1), "roi_heads.mask_head." + number + ".0");
  }
  return names;
}

}  // namespace libtrain::models
