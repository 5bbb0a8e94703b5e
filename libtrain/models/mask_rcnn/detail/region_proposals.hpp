#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

namespace libtrain::models::detail {

/// What the network says of the anchors of a batch, all levels in one tensor, the finest first.
struct AnchorPredictions {
  at::Tensor anchors;      ///< float32 [A, 4]
  at::Tensor logits;       ///< float32 [B, A]: is there an object?
  at::Tensor corrections;  ///< float32 [B, A, 4] of the anchors
  std::vector<std::int64_t> anchors_of_level = {};
};

/// One convolution over each map, and one more for each of its two outputs; the same weights for all maps.
class ProposalHeadImpl : public torch::nn::Module {
 public:
  ProposalHeadImpl(std::int64_t channels, std::int64_t anchors);

  /// Logits [B, h * w * anchors] and corrections [B, h * w * anchors, 4] of a map [B, C, h, w].
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& map);

 private:
  torch::nn::Sequential conv_;
  torch::nn::Conv2d logits_, corrections_;
};
TORCH_MODULE(ProposalHead);

struct ProposalLosses {
  at::Tensor objectness;
  at::Tensor boxes;
};

class RegionProposalsImpl : public torch::nn::Module {
 public:
  explicit RegionProposalsImpl(const MaskRcnnOptions& options);

  AnchorPredictions forward(const std::vector<at::Tensor>& maps, const ImageSize& padded);

  /// The proposed boxes of each image, float32 [N, 4], without gradient: the best of each level, without those that
  /// overlap with a better one of the level, and of these the best of all levels.
  std::vector<at::Tensor> propose(const AnchorPredictions& predictions, const std::vector<ImageSize>& sizes) const;

  /// Sums, divided by nothing, over a sample of the anchors, whose number is added to `sampled`.
  ProposalLosses loss_sums(const AnchorPredictions& predictions, const std::vector<ObjectTargets>& targets,
                           std::int64_t& sampled) const;

 private:
  const AnchorOptions anchors_;
  const ProposalOptions options_;
  ProposalHead head_;
};
TORCH_MODULE(RegionProposals);

}  // namespace libtrain::models::detail
