#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>
#include <libtrain/models/resnet.hpp>

namespace libtrain::models::detail {

/// T. Lin et al., Feature Pyramid Networks: each level is a projection of the body's stage, to which the coarser level
/// is added at twice its size, and a 3x3 convolution after that.
class FeaturePyramidImpl : public torch::nn::Module {
 public:
  FeaturePyramidImpl(const std::vector<std::int64_t>& channels_of_stages, std::int64_t channels);

  /// One map for each stage, the finest first.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& stages);

 private:
  torch::nn::ModuleList projections_, outputs_;
};
TORCH_MODULE(FeaturePyramid);

/// A ResNet and a pyramid over its stages.
class PyramidBackboneImpl : public torch::nn::Module {
 public:
  explicit PyramidBackboneImpl(const MaskRcnnOptions& options);

  /// Maps of strides 4, 8, 16 and 32, and one more, with every second cell of the last: regions are cropped out of the
  /// first ones, and proposed on all.
  std::vector<at::Tensor> forward(const at::Tensor& images);

 private:
  ResNet body_;
  FeaturePyramid pyramid_;
};
TORCH_MODULE(PyramidBackbone);

}  // namespace libtrain::models::detail
