#include <libtrain/models/roberta/roberta.hpp>

#include <algorithm>
#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/text.hpp>
#include <libtrain/models/roberta/detail/encoder.hpp>

namespace libtrain::models {

namespace {

constexpr std::int64_t kNotMasked = -100;  // the label that transformers' losses leave out

const RobertaOptions& checked_sizes(const RobertaOptions& options) {
  const auto require = [](bool is_right, const std::string& what) {
    if (!is_right) throw std::invalid_argument(what);
  };
  const std::int64_t least = std::min({options.vocabulary, options.hidden, options.layers, options.heads,
                                       options.feed_forward, options.token_types, options.classes});
  require(least >= 1, text("RobertaOptions: a number of tokens, layers, heads or classes, or a width, is ", least,
                           ". It must be at least 1."));
  require(options.hidden % options.heads == 0, text("RobertaOptions::hidden is ", options.hidden, " and heads is ",
                                                    options.heads, ". Give a multiple of the number of heads."));
  require(options.pad_id >= 0 && options.pad_id < options.vocabulary,
          text("RobertaOptions::pad_id is ", options.pad_id, ". Give a token of the vocabulary, 0 to ",
               options.vocabulary - 1, "."));
  require(options.max_tokens() >= 1, text("RobertaOptions::positions is ", options.positions, " and pad_id is ",
                                          options.pad_id, ". Give at least pad_id + 2 positions."));
  for (const double dropout :
       {options.dropout, options.attention_dropout, options.classifier_dropout.value_or(options.dropout)}) {
    require(dropout >= 0 && dropout < 1,
            text("RobertaOptions: a dropout is ", dropout, "; it must be at least 0 and below 1."));
  }
  require(options.norm_epsilon > 0,
          text("RobertaOptions::norm_epsilon is ", options.norm_epsilon, ". It must be above 0."));
  require(options.initial_deviation >= 0,
          text("RobertaOptions::initial_deviation is ", options.initial_deviation, ". It must be at least 0."));
  return options;
}

}  // namespace

RobertaForClassificationImpl::RobertaForClassificationImpl(const RobertaOptions& options)
    : options_(checked_sizes(options)),
      roberta_(register_module("roberta", std::make_shared<detail::RobertaEncoderImpl>(options))) {
  const auto classifier = register_module("classifier", std::make_shared<torch::nn::Module>());
  const auto affine = [&](const std::string& name, std::int64_t outputs) {
    return classifier->register_module(name, std::make_shared<detail::AffineImpl>(options.hidden, outputs));
  };
  dense_ = affine("dense", options.hidden);
  out_proj_ = affine("out_proj", options.classes);
  detail::initialize_roberta(*this, options);
}

at::Tensor RobertaForClassificationImpl::forward(const PackedTexts& texts) {
  const auto drop = [&](const at::Tensor& values) {
    return at::dropout(values, options_.classifier_dropout.value_or(options_.dropout), is_training());
  };
  const auto states = roberta_->forward(texts, texts.first_tokens());
  return out_proj_->forward(drop(dense_->forward(drop(states)).tanh()));
}

at::Tensor classification_loss(RobertaTask task, const at::Tensor& logits, const at::Tensor& labels) {
  const auto numbers = logits.to(at::kFloat);
  if (task == RobertaTask::single_label) return at::cross_entropy_loss(numbers, labels);
  const bool is_one_each = labels.dim() == 1 && logits.dim() == 2 && logits.size(1) == 1;
  const auto expected = is_one_each ? logits.sizes().slice(0, 1) : logits.sizes();
  if (labels.sizes() != expected) {
    throw std::invalid_argument(text("Logits of the shape [", join(logits.sizes(), ", "),
                                     "] were given labels of the shape [", join(labels.sizes(), ", "),
                                     "]. Give labels of the shape [", join(expected, ", "), "]."));
  }
  const auto wanted = labels.to(at::kFloat).reshape(logits.sizes());
  return task == RobertaTask::multi_label ? at::binary_cross_entropy_with_logits(numbers, wanted)
                                          : at::mse_loss(numbers, wanted);
}

RobertaForMaskedLmImpl::RobertaForMaskedLmImpl(const RobertaOptions& options)
    : options_(checked_sizes(options)),
      roberta_(register_module("roberta", std::make_shared<detail::RobertaEncoderImpl>(options))) {
  const auto head = register_module("lm_head", std::make_shared<torch::nn::Module>());
  bias_ = head->register_parameter("bias", at::zeros({options.vocabulary}));
  dense_ = head->register_module("dense", std::make_shared<detail::AffineImpl>(options.hidden, options.hidden));
  layer_norm_ =
      head->register_module("layer_norm", std::make_shared<detail::NormImpl>(options.hidden, options.norm_epsilon));
  detail::initialize_roberta(*this, options);
}

at::Tensor RobertaForMaskedLmImpl::forward(const PackedTexts& texts, const at::Tensor& tokens) {
  const auto states = at::gelu(dense_->forward(roberta_->forward(texts, tokens)));
  const auto normed =
      at::layer_norm(states, {options_.hidden}, layer_norm_->weight, layer_norm_->bias, layer_norm_->epsilon);
  return at::linear(normed, roberta_->words(), bias_);
}

at::Tensor RobertaForMaskedLmImpl::forward(const at::Tensor& ids, const at::Tensor& mask) {
  const auto logits = forward(unpadded_texts(ids, mask, options_.pad_id));
  const std::vector<std::int64_t> shape{ids.size(0), ids.size(1), options_.vocabulary};
  if (logits.size(0) == ids.numel()) return logits.view(shape);
  const auto tokens = mask.ne(0).reshape({-1}).nonzero().squeeze(1).to(logits.device());
  return at::zeros({ids.numel(), options_.vocabulary}, logits.options()).index_copy(0, tokens, logits).view(shape);
}

at::Tensor masked_lm_loss(const at::Tensor& logits, const at::Tensor& labels) {
  const auto flat = labels.reshape({-1});
  const auto numbers = logits.reshape({flat.numel(), logits.size(-1)}).to(at::kFloat);
  const auto sum = at::cross_entropy_loss(numbers, flat, {}, at::Reduction::Sum, kNotMasked);
  return sum / flat.ne(kNotMasked).sum().clamp_min(1);
}

RobertaOptions roberta_base(RobertaOptions options) {
  options.hidden = 768;
  options.layers = options.heads = 12;
  options.feed_forward = 3072;
  options.positions = 514;
  return options;
}

RobertaOptions roberta_large(RobertaOptions options) {
  options.hidden = 1024;
  options.layers = 24;
  options.heads = 16;
  options.feed_forward = 4096;
  options.positions = 514;
  return options;
}

RobertaOptions roberta_tiny(RobertaOptions options) {
  options.hidden = 64;
  options.layers = 2;
  options.heads = 4;
  options.feed_forward = 256;
  options.positions = 130;
  return options;
}

std::vector<std::string> roberta_names() {
  return {"base", "large", "tiny"};
}

RobertaOptions roberta_options(const std::string& name, RobertaOptions options) {
  if (name == "base") return roberta_base(std::move(options));
  if (name == "large") return roberta_large(std::move(options));
  if (name == "tiny") return roberta_tiny(std::move(options));
  throw std::invalid_argument("There is no RoBERTa '" + name + "'. There are base, large and tiny.");
}

std::vector<std::pair<std::string, std::string>> renamed_roberta_tensors(std::int64_t layers, const std::string& head) {
  std::vector<std::pair<std::string, std::string>> names{
      {"embeddings.", "roberta.embeddings."},
      {"encoder.layer.", "roberta.encoder.layer."},
      {"pooler.", "roberta.pooler."},
      {"classification_heads." + head + ".", "classifier."},
  };
  for (const char* encoder : {"encoder.", "decoder."}) {
    const std::string old = encoder;
    names.emplace_back(old + "lm_head.weight", "lm_head.decoder.weight");
    names.emplace_back(old + "lm_head.", "lm_head.");
    const auto sentence = old + "sentence_encoder.";
    names.emplace_back(sentence + "embed_tokens.", "roberta.embeddings.word_embeddings.");
    names.emplace_back(sentence + "embed_positions.", "roberta.embeddings.position_embeddings.");
    for (const char* norm : {"layernorm_embedding.", "emb_layer_norm."}) {
      names.emplace_back(sentence + norm, "roberta.embeddings.LayerNorm.");
    }
    for (std::int64_t k = 0; k < layers; ++k) {
      const auto from = sentence + "layers." + std::to_string(k) + ".";
      const auto to = "roberta.encoder.layer." + std::to_string(k) + ".";
      names.emplace_back(from + "self_attn.q_proj.", to + "attention.self.query.");
      names.emplace_back(from + "self_attn.k_proj.", to + "attention.self.key.");
      names.emplace_back(from + "self_attn.v_proj.", to + "attention.self.value.");
      names.emplace_back(from + "self_attn.out_proj.", to + "attention.output.dense.");
      names.emplace_back(from + "self_attn_layer_norm.", to + "attention.output.LayerNorm.");
      names.emplace_back(from + "fc1.", to + "intermediate.dense.");
      names.emplace_back(from + "fc2.", to + "output.dense.");
      names.emplace_back(from + "final_layer_norm.", to + "output.LayerNorm.");
    }
  }
  return names;
}

std::vector<std::string> unused_roberta_tensors(const RobertaConfig& config) {
  std::vector<std::string> names{"roberta.pooler.", "roberta.embeddings.position_ids",
                                 "roberta.embeddings.token_type_ids"};
  names.push_back(config.masked_lm ? "lm_head.decoder." : "lm_head.");
  return names;
}

}  // namespace libtrain::models
