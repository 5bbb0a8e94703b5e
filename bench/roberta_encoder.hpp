#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/pimpl.h>

namespace libtrain::bench {

/// RoBERTa's widths with fewer layers and a small vocabulary; the same numbers are in bench/peers/workload_sizes.py.
struct RobertaSizes {
  static constexpr std::int64_t vocabulary = 8192;
  static constexpr std::int64_t sequence = 64;
  static constexpr std::int64_t hidden = 768;
  static constexpr std::int64_t feedforward = 3072;
  static constexpr std::int64_t heads = 12;
  static constexpr std::int64_t layers = 2;
  static constexpr std::int64_t classes = 2;
  static constexpr double dropout = 0.1;
};

/// Classifies sentences by their first token: embeddings of tokens and positions, layer norm, and layers of
/// self-attention with GELU, norms last. 20,519,426 parameters.
class RobertaEncoderImpl : public torch::nn::Module {
 public:
  RobertaEncoderImpl();

  /// Logits, float [N, classes], of tokens, int64 [sequence, N].
  at::Tensor forward(const at::Tensor& tokens);

 private:
  torch::nn::Embedding tokens_{nullptr};
  torch::nn::Embedding positions_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::TransformerEncoder encoder_{nullptr};
  torch::nn::Linear head_{nullptr};
  at::Tensor indices_;  // 0, 1, ... of the positions
};
TORCH_MODULE(RobertaEncoder);

}  // namespace libtrain::bench
