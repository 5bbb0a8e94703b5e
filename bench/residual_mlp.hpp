#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace libtrain::bench {

/// Many small gradients: 100 weights of 1,000 elements. The same numbers are in bench/peers/workload_sizes.py.
struct ResidualMlpSizes {
  static constexpr std::int64_t features = 25;  ///< of inputs and logits
  static constexpr std::int64_t hidden = 40;
  static constexpr std::int64_t blocks = 50;
};

/// Each block adds to its input what two linear layers without bias, with a ReLU between them, make of it. (Without
/// the addition values would shrink to denormal numbers on their way through so many layers.)
class ResidualMlpImpl : public torch::nn::Module {
 public:
  ResidualMlpImpl();

  /// Float [N, features] -> [N, features].
  at::Tensor forward(const at::Tensor& inputs);

 private:
  std::vector<std::pair<torch::nn::Linear, torch::nn::Linear>> blocks_;
};
TORCH_MODULE(ResidualMlp);

}  // namespace libtrain::bench
