#include <bench/roberta_encoder.hpp>

#include <torch/types.h>

namespace libtrain::bench {

namespace {

torch::nn::TransformerEncoder make_encoder() {
  const auto layer = torch::nn::TransformerEncoderLayerOptions(RobertaSizes::hidden, RobertaSizes::heads)
                         .dim_feedforward(RobertaSizes::feedforward)
                         .dropout(RobertaSizes::dropout)
                         .activation(torch::kGELU);
  return torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(layer, RobertaSizes::layers));
}

}  // namespace

RobertaEncoderImpl::RobertaEncoderImpl() : indices_(torch::arange(RobertaSizes::sequence, torch::kLong)) {
  tokens_ = register_module("tokens", torch::nn::Embedding(RobertaSizes::vocabulary, RobertaSizes::hidden));
  positions_ = register_module("positions", torch::nn::Embedding(RobertaSizes::sequence, RobertaSizes::hidden));
  norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({RobertaSizes::hidden})));
  dropout_ = register_module("dropout", torch::nn::Dropout(RobertaSizes::dropout));
  encoder_ = register_module("encoder", make_encoder());
  head_ = register_module("head", torch::nn::Linear(RobertaSizes::hidden, RobertaSizes::classes));
}

at::Tensor RobertaEncoderImpl::forward(const at::Tensor& tokens) {
  if (indices_.device() != tokens.device()) indices_ = indices_.to(tokens.device());
  const auto embedded = tokens_->forward(tokens) + positions_->forward(indices_).unsqueeze(1);
  const auto hidden = encoder_->forward(dropout_->forward(norm_->forward(embedded)));
  return head_->forward(hidden.select(0, 0));
}

}  // namespace libtrain::bench
