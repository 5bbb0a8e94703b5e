#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <torch/nn/module.h>

namespace libtrain::bench {

/// Where a network and its batch are, and how images and the weights of convolutions lie there.
struct Placement {
  c10::Device device = c10::kCPU;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;  ///< or ChannelsLast
};

/// A network and one batch of synthetic data for it.
struct Workload {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor()> loss;  ///< forward and cross entropy on the batch, or the sum of a detector's losses
  bool takes_images = false;         ///< of `image_size`, which the others do not look at
  double learning_rate = 0.001;
};

/// A batch of `batch` samples for
///   "resnet18", "resnet50"  images of `image_size` squared, 1000 classes;
///   "mask_rcnn"             Mask R-CNN with ResNet-50-FPN, images of `image_size` squared with 8 objects each. The
///                           time of a step depends on how many proposals meet an object: weights hardly change;
///   "mlp"                   1024-2048-2048-1000 with ReLU: few large gradients;
///   "roberta"               a RoBERTa of 2 layers, vocabulary 8192, texts of 64 tokens: a few large gradients and many
///                           middling ones;
///   "roberta_base"          RoBERTa base, texts of 128 tokens;
///   "tensors100"            see ResidualMlp: many small gradients.
/// Throws UsageError for another name, and for an `image_size` that the network does not take.
Workload make_workload(const std::string& name, std::int64_t batch, std::int64_t image_size,
                       const Placement& placement = {});

/// 8 images or texts, 2 images with objects, 64 vectors. Throws UsageError for another name.
std::int64_t default_batch(const std::string& name);

/// "resnet18, resnet50, mask_rcnn, mlp, roberta, roberta_base or tensors100"
std::string workload_names();

}  // namespace libtrain::bench
