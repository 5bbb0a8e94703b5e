#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <torch/nn/module.h>

namespace libtrain::bench {

/// A network and one batch of synthetic data for it.
struct Workload {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor()> loss;  ///< forward and cross entropy on the batch
};

/// "resnet18" or "resnet50" on `batch` images of `image_size` squared, or "mlp" (1024-2048-2048-1000, ReLU) on `batch`
/// vectors; 1000 classes. Throws UsageError for another name.
Workload make_workload(const std::string& name, std::int64_t batch, std::int64_t image_size);

/// 8 images or 64 vectors.
std::int64_t default_batch(const std::string& name);

}  // namespace libtrain::bench
