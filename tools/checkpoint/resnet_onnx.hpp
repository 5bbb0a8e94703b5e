#pragma once

#include <map>
#include <string>

#include <libtrain/checkpoint/tensor_info.hpp>

#include <tools/checkpoint/onnx_model.hpp>

namespace libtrain::checkpoint_tool {

/// The ONNX model, in evaluation mode, of the ResNet whose weights a file has: `tensors` are these by torchvision's
/// names, which libtrain's models have too, and `path` is the file, for errors. The weights of the model are among
/// them; `num_batches_tracked` is not used.
///
/// The network follows from names and shapes: 1 to 4 stages of basic blocks or bottlenecks, the width, the groups and
/// inner width of bottlenecks (ResNeXt, wide ResNets), the number of classes, and the stem, which is a 7x7 convolution
/// with stride 2 before a 3x3 max-pooling, or a 3x3 convolution alone. What they do not say is as in torchvision:
/// stages but the first begin with stride 2 in a block's first 3x3 convolution, no convolution is dilated, and the
/// epsilon of batch norm is 1e-5.
///
/// Its input `images` is [N, channels, H, W] and its output `logits` [N, classes], with N, H and W the caller's choice.
///
/// Throws UsageError if the weights are not those of a ResNet, with the first that is missing, is unexpected, and has
/// another shape or no real floating-point type.
OnnxModel resnet_onnx(const std::map<std::string, TensorInfo>& tensors, const std::string& path);

}  // namespace libtrain::checkpoint_tool
