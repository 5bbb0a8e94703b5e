#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <libtrain/models/roberta/detail/attention.hpp>
#include <libtrain/models/roberta/detail/layer_operators.hpp>
#include <libtrain/models/roberta/packed_texts.hpp>
#include <libtrain/models/roberta/roberta_config.hpp>

namespace libtrain::models::detail {

/// A matrix [outputs, inputs] and a bias [outputs], under the names of torch::nn::Linear, not initialised.
class AffineImpl : public torch::nn::Module {
 public:
  AffineImpl(std::int64_t inputs, std::int64_t outputs);

  at::Tensor forward(const at::Tensor& inputs) const;

  at::Tensor weight, bias;
};

/// Scale and shift of a layer norm, under the names of torch::nn::LayerNorm, not initialised.
class NormImpl : public torch::nn::Module {
 public:
  NormImpl(std::int64_t width, double epsilon);

  at::Tensor weight, bias;
  const double epsilon;
};

/// What a layer drops in one step: of the probabilities of attention, and of what each of its halves adds to its input.
struct LayerDropout {
  Dropout probabilities, attended, output;
};

/// The rates of `options`, and new seeds of torch's CPU generator.
LayerDropout draw_dropout(const RobertaOptions& options);

/// Embeddings and layers, under the names of transformers' RobertaModel without a pooler.
class RobertaEncoderImpl : public torch::nn::Module {
 public:
  explicit RobertaEncoderImpl(const RobertaOptions& options);

  /// The states after the last layer, [N, hidden], of the N tokens `rows`, int64 [N] on any device, strictly ascending;
  /// undefined for all. Checks its arguments as RobertaForClassification::forward says.
  at::Tensor forward(const PackedTexts& texts, const at::Tensor& rows);

  /// The embeddings of the vocabulary, [vocabulary, hidden].
  const at::Tensor& words() const { return words_; }

 private:
  struct Layer;

  at::Tensor embed(const PackedTexts& texts);

  const RobertaOptions options_;
  at::Tensor words_, positions_, token_types_;
  std::shared_ptr<NormImpl> norm_;
  std::vector<std::shared_ptr<Layer>> layers_;
};

/// Fills all parameters of a model as transformers does: matrices and embeddings from a normal distribution, with zeros
/// for the row `pad_id` of words and positions; biases 0, norms 1 and 0.
void initialize_roberta(torch::nn::Module& model, const RobertaOptions& options);

}  // namespace libtrain::models::detail
