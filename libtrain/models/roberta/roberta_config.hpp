#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace libtrain::models {

/// What the classifier of a text predicts, and so its loss; in brackets the `problem_type` of Hugging Face.
enum class RobertaTask {
  single_label,  ///< one class of several [single_label_classification]
  multi_label,   ///< any number of the classes [multi_label_classification]
  regression,    ///< numbers [regression]
};

/// The sizes of a RoBERTa, by default those of RoBERTa base.
struct RobertaOptions {
  std::int64_t vocabulary = 50265;
  std::int64_t hidden = 768;  ///< width of a token's state, a multiple of `heads`
  std::int64_t layers = 12;
  std::int64_t heads = 12;           ///< of attention
  std::int64_t feed_forward = 3072;  ///< width between a layer's last two matrices
  /// Rows of the table of positions. A text has at most positions - pad_id - 1 tokens: max_tokens().
  std::int64_t positions = 514;
  std::int64_t token_types = 1;    ///< rows of the table of token types, of which only the first is used
  std::int64_t pad_id = 1;         ///< the token that has no embedding; positions are counted from the next number on
  double dropout = 0.1;            ///< of the embeddings and of what a layer adds to its input, [0, 1)
  double attention_dropout = 0.1;  ///< of the probabilities of attention
  std::optional<double> classifier_dropout = {};  ///< before each matrix of the classifier; empty: as `dropout`
  double norm_epsilon = 1e-5;
  double initial_deviation = 0.02;  ///< standard deviation of new weights

  /// false: the matrices and embeddings of a new model's encoder have undefined values. For weights that are loaded at
  /// once, and of which nothing below "roberta." may be missing: drawing those of RoBERTa base takes longer than
  /// loading.
  bool draw_encoder = true;

  std::int64_t classes = 2;  ///< outputs of the classifier
  RobertaTask task = RobertaTask::single_label;

  /// Whether a layer keeps only its input for the backward pass, which computes the layer again: a third more work for
  /// memory that hardly grows with the number of layers.
  bool recompute_layers = false;

  std::int64_t max_tokens() const { return positions - pad_id - 1; }
};

/// A model as Hugging Face's `config.json` describes it.
struct RobertaConfig {
  RobertaOptions options = {};
  std::vector<std::string> classes =
      {};                     ///< names by number, as many as `options.classes`; empty: LABEL_0, LABEL_1, ...
  bool masked_lm = false;     ///< RobertaForMaskedLM rather than RobertaForSequenceClassification
  std::int64_t begin_id = 0;  ///< of <s>
  std::int64_t end_id = 2;    ///< of </s>
};

/// Reads a `config.json`, or that of a folder. A key that it lacks has the default of transformers' RobertaConfig,
/// which is not always that of RobertaOptions (512 positions, 2 token types, epsilon 1e-12). Of the names in id2label
/// there must be one for each number. Throws EnvironmentError, which names the file and the key or byte, for a file
/// that cannot be read or is no JSON object, a value of another type or out of range, sizes that do not fit each other
/// or are beyond 1,000 layers or 1e11 parameters, a model_type other than "roberta", and settings that this model does
/// not have: another activation than "gelu", a decoder, relative positions, an untied decoder.
RobertaConfig read_roberta_config(const std::string& path);

/// Writes a `config.json` that read_roberta_config() and transformers read: the file `path`, or in that folder if it is
/// one. Throws UsageError for another number of names than of classes and for a name that is not UTF-8,
/// EnvironmentError if it cannot be written.
void write_roberta_config(const RobertaConfig& config, const std::string& path);

}  // namespace libtrain::models
