#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <libtrain/models/resnet.hpp>

namespace libtrain::models {

namespace detail {
class PyramidBackboneImpl;
class RegionProposalsImpl;
class BoxHeadImpl;
class MaskHeadImpl;
}  // namespace detail

/// Boxes that are tried at each cell of each level of the pyramid.
struct AnchorOptions {
  std::vector<double> sizes = {32, 64, 128, 256, 512};  ///< side of a square of equal area, in pixels; one per level
  std::vector<double> ratios = {0.5, 1.0, 2.0};         ///< height divided by width
};

/// The network that proposes regions: S. Ren et al., Faster R-CNN, NeurIPS 2015.
struct ProposalOptions {
  double at_least = 0.7;           ///< an anchor's overlap with an object to be positive
  double below = 0.3;              ///< an anchor's overlap with all objects to be negative
  std::int64_t samples = 256;      ///< anchors of an image that the loss is computed of
  double positive_fraction = 0.5;  ///< of the samples, at most
  double nms_threshold = 0.7;
  /// Of each level those of the best scores, before non-maximum suppression, and of an image after it.
  std::int64_t candidates_training = 2000;
  std::int64_t kept_training = 2000;
  std::int64_t candidates = 1000;
  std::int64_t kept = 1000;
};

/// The second stage, which classifies the proposals and refines their boxes.
struct BoxOptions {
  std::int64_t pooled = 7;  ///< side of a region's crop
  std::int64_t hidden = 1024;
  double at_least = 0.5;  ///< a proposal's overlap with an object to be positive
  double below = 0.5;
  std::int64_t samples = 512;       ///< proposals of an image that the losses are computed of
  double positive_fraction = 0.25;  ///< of the samples, at most
  double score_threshold = 0.05;    ///< detections need a higher score
  double nms_threshold = 0.5;       ///< of detections, in each class
  std::int64_t detections = 100;    ///< of an image, at most
};

struct MaskOptions {
  std::int64_t pooled = 14;                                   ///< side of a region's crop; masks are twice as large
  std::vector<std::int64_t> channels = {256, 256, 256, 256};  ///< of the 3x3 convolutions
  std::int64_t upsampled_channels = 256;
};

struct MaskRcnnOptions {
  std::int64_t classes = 91;                        ///< with the background, which is 0
  Block block = Block::bottleneck;                  ///< of the backbone's body, which is a ResNet
  std::vector<std::int64_t> layers = {3, 4, 6, 3};  ///< blocks of each of the body's 4 stages
  std::int64_t width = 64;                          ///< channels of the first stage: ResNetOptions::width
  /// Whether the body's batch norms are constants, for a body with trained weights and few images a step; otherwise
  /// they compute statistics: see `norm`.
  bool frozen_batch_norm = true;
  /// Without frozen_batch_norm: as ResNetOptions::norm. Empty: torch::nn::BatchNorm2d, whose statistics are of each
  /// rank's images, which may be few; with the function that libtrain::sync_batch_norm_factory returns they are of
  /// those of all ranks.
  std::function<torch::nn::AnyModule(std::int64_t channels)> norm = {};
  double norm_epsilon = 1e-5;  ///< of frozen batch norms; 0 for torchvision's weights COCO_V1
  /// How many of conv1, layer1, ... layer4 of the body are trained, counted from the end; 5 for all, with bn1.
  std::int64_t trainable_stages = 3;
  std::int64_t pyramid_channels = 256;
  AnchorOptions anchors = {};
  ProposalOptions proposals = {};
  BoxOptions boxes = {};
  std::optional<MaskOptions> masks = MaskOptions{};  ///< std::nullopt for Faster R-CNN, which has no masks
};

/// Height and width in pixels.
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;

  bool operator==(const ImageSize&) const = default;
};

/// Normalised images, each at the top left of a tensor that is padded with zeros.
struct ImageBatch {
  at::Tensor images;             ///< float [B, 3, H, W]; H and W multiples of 32
  std::vector<ImageSize> sizes;  ///< of each image, without the padding
};

/// The objects in an image, for training.
struct ObjectTargets {
  at::Tensor boxes;   ///< float32 [N, 4]: left, top, right, bottom in pixels, right > left and bottom > top
  at::Tensor labels;  ///< int64 [N], from 1 on
  at::Tensor masks;   ///< uint8 [N, h, w] of 0 and 1; h and w reach to the bottom and right of all boxes
  /// Chooses the anchors and proposals that the losses are computed of: sampling_seed(), so that the choice is the same
  /// whatever the batch and the rank that the image is in.
  std::uint64_t seed = 0;
};

/// A hash of the seed of a run, a step of it, and what identifies an image.
std::uint64_t sampling_seed(std::uint64_t run, std::int64_t step, std::int64_t image);

/// Sums divided by the counts of AverageCounts: those of boxes, of four numbers for each positive anchor or proposal,
/// are divided by all that were sampled, as in torchvision. No gradient for what a loss does not depend on. All five
/// depend on all parameters of their parts even if there is no object, so that every rank has a gradient for every
/// parameter.
struct MaskRcnnLosses {
  at::Tensor objectness;      ///< is an anchor an object? binary cross entropy
  at::Tensor proposal_boxes;  ///< corrections of the positive anchors, smooth L1
  at::Tensor classifier;      ///< the class of a proposal, cross entropy
  at::Tensor boxes;           ///< corrections of the positive proposals, smooth L1
  at::Tensor masks;           ///< pixels of the positive proposals, binary cross entropy; undefined without masks

  at::Tensor sum() const;
};

/// The objects that were found in an image, by falling score.
struct Detections {
  at::Tensor boxes;   ///< float32 [N, 4], in pixels of the batch's image
  at::Tensor labels;  ///< int64 [N], from 1 on
  at::Tensor scores;  ///< float32 [N]
  at::Tensor masks;   ///< float32 [N, M, M]: probabilities on a grid over the box; undefined without masks
};

/// Counts that losses are divided by: sampled anchors, sampled proposals, positive proposals. Float32 [3].
///
/// By default these are the counts of the batch at hand, as in torchvision: a rank with few objects then weights each
/// of them more than another rank does. A function that returns the mean over all ranks makes the average over the
/// ranks equal to the loss of one batch with all images.
using AverageCounts = std::function<at::Tensor(const at::Tensor& counts)>;

/// Mask R-CNN with a feature pyramid: K. He et al., Mask R-CNN, ICCV 2017; T. Lin et al., Feature Pyramid Networks for
/// Object Detection, CVPR 2017.
///
/// Names, shapes and computations are those of torchvision's MaskRCNN with the sizes above, so that its weights load by
/// name. In train mode losses() is for training, in eval mode detect() for the rest.
class MaskRcnnImpl : public torch::nn::Module {
 public:
  /// Throws std::invalid_argument for an option out of range.
  explicit MaskRcnnImpl(const MaskRcnnOptions& options = {});

  /// Throws std::invalid_argument, which names the image, for targets of another number than the images, for labels out
  /// of range, degenerate boxes, and missing masks; and for no images.
  MaskRcnnLosses losses(const ImageBatch& batch, const std::vector<ObjectTargets>& targets,
                        const AverageCounts& average = {});

  /// Throws std::invalid_argument for another number of sizes than of images.
  std::vector<Detections> detect(const ImageBatch& batch);

  const MaskRcnnOptions& options() const { return options_; }

 private:
  const MaskRcnnOptions options_;
  std::shared_ptr<detail::PyramidBackboneImpl> backbone_;
  std::shared_ptr<detail::RegionProposalsImpl> proposals_;
  std::shared_ptr<detail::BoxHeadImpl> box_head_;
  std::shared_ptr<detail::MaskHeadImpl> mask_head_;
};
TORCH_MODULE(MaskRcnn);

/// With so many parameters for 91 classes. `block`, `layers` and `width` of the options are replaced.
MaskRcnn mask_rcnn_resnet50_fpn(MaskRcnnOptions options = {});   // 44,401,393
MaskRcnn mask_rcnn_resnet101_fpn(MaskRcnnOptions options = {});  // 63,341,297

/// A small network for small images and tests, which trains on a CPU in minutes: objects of 8 to 128 pixels, trainable
/// batch norms. What the body is, sizes, channels and numbers of samples of the options are replaced. 606,679
/// parameters for 4 classes.
MaskRcnn mask_rcnn_tiny(MaskRcnnOptions options = {});

/// One of these by its name: "resnet50", "resnet101", "tiny". Throws std::invalid_argument for others.
MaskRcnn make_mask_rcnn(const std::string& name, MaskRcnnOptions options = {});

/// The names that make_mask_rcnn() knows.
std::vector<std::string> mask_rcnn_names();

/// Old and new names of tensors that torchvision renamed in 0.13, such as those of the file of COCO_V1: for
/// LoadWeightsOptions::rename.
std::vector<std::pair<std::string, std::string>> renamed_mask_rcnn_tensors();

}  // namespace libtrain::models
