#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

namespace libtrain::models::detail {

/// Boxes in the images of a batch, for roi_align().
struct Regions {
  at::Tensor boxes;   ///< float32 [K, 4]
  at::Tensor images;  ///< int64 [K]: which image each box is in
};

Regions make_regions(const std::vector<at::Tensor>& boxes_of_images);

/// A sample of the proposals of all images, by image, and what they should become.
struct RegionSamples {
  Regions regions;
  at::Tensor labels;   ///< int64 [K]: the class, 0 for the background
  at::Tensor matches;  ///< int64 [K]: the number of the object in its image
  at::Tensor boxes;    ///< float32 [K, 4]: of the objects; of the background anything
};

struct BoxLosses {
  at::Tensor classifier;
  at::Tensor boxes;
};

/// Two fully connected layers over the crop of a region, then its class and a correction of its box for each class.
class BoxHeadImpl : public torch::nn::Module {
 public:
  explicit BoxHeadImpl(const MaskRcnnOptions& options);

  /// Adds the modules under torchvision's names.
  void register_in(torch::nn::Module& parent);

  /// Chooses the regions to train on: among the proposals and the objects themselves.
  RegionSamples sample(const std::vector<at::Tensor>& proposals, const std::vector<ObjectTargets>& targets) const;

  /// Class logits [K, classes] and corrections [K, classes, 4], float32; `maps` are the pyramid's levels.
  std::pair<at::Tensor, at::Tensor> forward(const std::vector<at::Tensor>& maps, const Regions& regions);

  /// Sums, divided by nothing.
  BoxLosses loss_sums(const at::Tensor& logits, const at::Tensor& corrections, const RegionSamples& samples) const;

  /// Detections without masks.
  std::vector<Detections> detect(const at::Tensor& logits, const at::Tensor& corrections,
                                 const std::vector<at::Tensor>& proposals, const std::vector<ImageSize>& sizes) const;

 private:
  const BoxOptions options_;
  torch::nn::Linear fc6_, fc7_, classes_, corrections_;
};
TORCH_MODULE(BoxHead);

}  // namespace libtrain::models::detail
