#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include <libtrain/models/mask_rcnn/detail/box_head.hpp>
#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

namespace libtrain::models::detail {

/// Convolutions over the crop of a region, at the end at twice its size: a mask for each class.
class MaskHeadImpl : public torch::nn::Module {
 public:
  explicit MaskHeadImpl(const MaskRcnnOptions& options);

  /// Adds the modules under torchvision's names.
  void register_in(torch::nn::Module& parent);

  /// Logits of the mask of the class that `labels` (int64 [K]) names, float32 [K, M, M]. Those of other classes are not
  /// computed.
  at::Tensor forward(const std::vector<at::Tensor>& maps, const Regions& regions, const at::Tensor& labels);

  /// Of the positive samples, the mean over each mask, added up; `positives` is raised by their number. Depends on all
  /// parameters even if there is none.
  at::Tensor loss_sum(const std::vector<at::Tensor>& maps, const RegionSamples& samples,
                      const std::vector<ObjectTargets>& targets, std::int64_t& positives);

 private:
  const std::int64_t pooled_;
  torch::nn::Sequential convolutions_;
  torch::nn::ConvTranspose2d upsampling_;
  torch::nn::Conv2d logits_;
};
TORCH_MODULE(MaskHead);

}  // namespace libtrain::models::detail
