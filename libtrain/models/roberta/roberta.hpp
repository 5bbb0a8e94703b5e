#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <libtrain/models/roberta/packed_texts.hpp>
#include <libtrain/models/roberta/roberta_config.hpp>

namespace libtrain::models {

namespace detail {
class RobertaEncoderImpl;
class AffineImpl;
class NormImpl;
}  // namespace detail

/// RoBERTa: Y. Liu et al., RoBERTa: A Robustly Optimized BERT Pretraining Approach, arXiv:1907.11692; its encoder is
/// that of J. Devlin et al., BERT, NAACL 2019, with norms after each part of a layer.
///
/// Names, shapes, order, initialisation and computation are those of Hugging Face's transformers, so that their weights
/// load by name, and ours there: RobertaForSequenceClassification and RobertaForMaskedLM.
///
/// Texts are packed; a padded batch is packed first, so that both give the same numbers. Each text attends to itself
/// alone. The encoder computes its last layer only for the tokens that the head reads. In train mode, and with a
/// dropout above 0, which numbers are dropped depends on torch's generator of the model's device and on the shape of
/// the batch: packed in another order, texts get other masks.
///
/// Under Autocast, activations between the layers are of its type, sums and norms are computed in float32, and
/// parameters and their gradients stay what they are.
///
/// forward() throws std::invalid_argument for ids that are not int64 [T] or not T of them, a text without a token, a
/// text longer than options().max_tokens(), which it names, and, if the ids are on the CPU, an id outside the
/// vocabulary.

/// RoBERTa with a classifier over the state of a text's first token, which is <s>: dropout, a matrix, tanh, dropout,
/// and a matrix.
class RobertaForClassificationImpl : public torch::nn::Module {
 public:
  /// Throws std::invalid_argument for an option out of range.
  explicit RobertaForClassificationImpl(const RobertaOptions& options = {});

  /// Logits, [B, classes]; of regression the numbers themselves.
  at::Tensor forward(const PackedTexts& texts);

  /// Of a padded batch: see unpadded_texts().
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& mask) {
    return forward(unpadded_texts(ids, mask, options_.pad_id));
  }

  const RobertaOptions& options() const { return options_; }

 private:
  const RobertaOptions options_;
  std::shared_ptr<detail::RobertaEncoderImpl> roberta_;
  std::shared_ptr<detail::AffineImpl> dense_, out_proj_;
};
TORCH_MODULE(RobertaForClassification);

/// The mean loss of the classifier's task, float32: cross entropy with `labels` int64 [B], binary cross entropy with
/// labels of 0 and 1, [B, classes], or mean squared error with numbers, [B, classes]; for one class also [B]. Throws
/// std::invalid_argument for other shapes of the last two.
at::Tensor classification_loss(RobertaTask task, const at::Tensor& logits, const at::Tensor& labels);

/// RoBERTa that predicts masked tokens: a matrix, GELU and a norm over a token's state, then its product with the
/// embeddings of all tokens, which are the decoder's weights, and a bias.
class RobertaForMaskedLmImpl : public torch::nn::Module {
 public:
  /// Throws std::invalid_argument for an option out of range.
  explicit RobertaForMaskedLmImpl(const RobertaOptions& options = {});

  /// Logits, [N, vocabulary], of the N tokens whose numbers in `texts.ids` are `tokens`, int64 [N], ascending;
  /// undefined for all. Only for these the last layer and the decoder are computed: give those that are masked. Throws
  /// std::invalid_argument for numbers that are out of range or do not ascend.
  at::Tensor forward(const PackedTexts& texts, const at::Tensor& tokens = {});

  /// Logits [B, S, vocabulary] of a padded batch: see unpadded_texts(). Those of padding are 0.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& mask);

  const RobertaOptions& options() const { return options_; }

 private:
  const RobertaOptions options_;
  std::shared_ptr<detail::RobertaEncoderImpl> roberta_;
  std::shared_ptr<detail::AffineImpl> dense_;
  std::shared_ptr<detail::NormImpl> layer_norm_;
  at::Tensor bias_;
};
TORCH_MODULE(RobertaForMaskedLm);

/// The mean cross entropy of `logits` [..., vocabulary] with the true ids, int64 [...], float32; without those labelled
/// -100, and 0 if there is no other.
at::Tensor masked_lm_loss(const at::Tensor& logits, const at::Tensor& labels);

/// The published sizes, with so many parameters for 2 classes, and for masked language modelling. Sizes in `options`
/// are replaced, but not the vocabulary.
RobertaOptions roberta_base(RobertaOptions options = {});   // 124,647,170; 124,697,433
RobertaOptions roberta_large(RobertaOptions options = {});  // 355,361,794; 355,412,057

/// For tests, and texts with simple rules on a CPU: 2 layers of width 64, 4 heads, 130 positions.
RobertaOptions roberta_tiny(RobertaOptions options = {});

/// One of these by its name: "base", "large", "tiny". Throws std::invalid_argument for others.
RobertaOptions roberta_options(const std::string& name, RobertaOptions options = {});

/// The names that roberta_options() knows.
std::vector<std::string> roberta_names();

/// Old and new beginnings of names, for LoadWeightsOptions::rename: those of fairseq's state_dict(), with or without
/// "decoder." in place of "encoder.", and those of a transformers RobertaModel without a head. What fairseq kept as one
/// `in_proj_weight` (before its version 0.9) must be split first. The heads of fairseq are named as given to
/// register_classification_head(): `head`.
std::vector<std::pair<std::string, std::string>> renamed_roberta_tensors(
    std::int64_t layers, const std::string& head = "sentence_classification_head");

/// Beginnings of names that published files have and the model that `config` describes does not need, for
/// LoadWeightsOptions::may_be_unexpected: the pooler, the numbers of positions, and the tied decoder; for a classifier
/// also the head of masked language modelling. The config.json of a pretrained model says `masked_lm`: set it to false
/// for a classifier, whose own tensors ("classifier.") are then missing.
std::vector<std::string> unused_roberta_tensors(const RobertaConfig& config);

}  // namespace libtrain::models
