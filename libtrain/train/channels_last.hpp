#pragma once

#include <torch/nn/module.h>

namespace libtrain {

/// Lays the module's parameters and buffers of four dimensions, such as the weights of 2-d convolutions, out as
/// channels_last (NHWC), as Module.to(memory_format=torch.channels_last) does in Python. Values, shapes and tensor
/// objects stay the same, so that optimizers keep their parameters.
///
/// Convolutions compute in channels_last if their images or their weights are. Tensor cores want 16-bit images so:
/// combine it with an Autocast, and with batches in that layout (DataLoaderOptions::normalize_on_device or
/// ImagePipelineOptions::layout), or each step reorders its images.
///
/// Module::to() keeps the layout. Call it before the first backward pass, GradientSynchronizer and optimizer step,
/// which lay gradients, buckets and momentum out as the parameters are. Throws UsageError if a parameter has a
/// gradient.
///
/// For GPUs, and for CPUs in bfloat16. On the CPU, LibTorch 2.11 writes past the end of memory in the backward pass of
/// channels_last convolutions of few channels: seen with a 1x1 convolution of 4 to 8 channels and stride 2, in Python
/// as well. Not in libtrain's ResNets, which have 16 and more, nor in its Mask R-CNN, whose convolutions to 3 and 12
/// channels have stride 1: glibc's MALLOC_CHECK_=3 was used to check both.
void to_channels_last(torch::nn::Module& module);

}  // namespace libtrain
