#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <torch/nn/module.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/models/roberta/roberta.hpp>
#include <libtrain/text/tokenizer.hpp>

enum class RobertaHead {
  loaded,
  replaced,  ///< what follows the encoder keeps the values that it has
};

/// The configuration of a folder, for a model whose weights load_roberta() loads.
inline libtrain::models::RobertaConfig read_roberta_folder(const std::string& folder) {
  auto config = libtrain::models::read_roberta_config(folder);
  config.options.draw_encoder = false;
  return config;
}

/// Empty if the vocabulary does not have the id.
inline std::string token_or_nothing(const libtrain::Tokenizer& tokenizer, std::int64_t id) {
  try {
    return tokenizer.token(id);
  } catch (const libtrain::UsageError&) {
    return {};
  }
}

/// Throws UsageError if the weights in the folder `weights` belong to another tokenizer than `tokenizer`, which is in
/// `folder`: to the one beside them, or, where there is none, to one with other ids of special tokens.
inline void require_tokenizer_of(const std::string& weights, const libtrain::models::RobertaConfig& config,
                                 const libtrain::Tokenizer& tokenizer, const std::string& folder) {
  const auto require = [&](const auto& found, const auto& expected, const auto&... what) {
    if (found == expected) return;
    throw libtrain::UsageError(libtrain::text("The tokenizer in '", folder, "' is not that of the weights in '",
                                              weights, "': ", what..., " '", found, "', expected '", expected,
                                              "'. Give the tokenizer with which they were trained as --tokenizer."));
  };
  if (tokenizer.vocabulary_size() > config.options.vocabulary) {
    require(tokenizer.vocabulary_size(), config.options.vocabulary, "its number of tokens is");
  }
  const auto has = [&](const char* name) { return std::filesystem::exists(std::filesystem::path(weights) / name); };
  if (!has("tokenizer.json") && !has("vocab.json")) {
    const auto& special = tokenizer.special_tokens();
    require(special.bos.value_or(config.begin_id), config.begin_id, "the id of <s> is");
    require(special.pad.value_or(config.options.pad_id), config.options.pad_id, "the id of <pad> is");
    require(special.eos.value_or(config.end_id), config.end_id, "the id of </s> is");
    return;
  }
  const auto expected = libtrain::read_tokenizer(weights);
  require(tokenizer.vocabulary_size(), expected.vocabulary_size(), "its number of tokens is");
  for (std::int64_t id = 0; id < expected.vocabulary_size(); ++id) {
    require(token_or_nothing(tokenizer, id), token_or_nothing(expected, id), "token ", id, " is");
  }
}

/// Loads the weights of a folder as Hugging Face's transformers write it, model.safetensors or pytorch_model.bin, into
/// the model that `config` describes.
inline void load_roberta(torch::nn::Module& model, const libtrain::models::RobertaConfig& config,
                         const std::string& folder, RobertaHead head) {
  const auto path = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  const bool safetensors = std::filesystem::exists(path("model.safetensors"));
  if (!safetensors && !std::filesystem::exists(path("pytorch_model.bin"))) {
    throw libtrain::EnvironmentError("'" + folder +
                                     "' has no model.safetensors and no pytorch_model.bin. Give a folder that "
                                     "train_text_classification or transformers have written.");
  }
  libtrain::LoadWeightsOptions options;
  options.may_be_unexpected = libtrain::models::unused_roberta_tensors(config);
  if (head == RobertaHead::replaced) {
    options.may_be_missing = {"classifier.", "lm_head."};
    for (const auto& name : options.may_be_missing) options.rename.push_back({name, "left out " + name});
    options.may_be_unexpected.emplace_back("left out ");
  }
  for (const auto& [from, to] : libtrain::models::renamed_roberta_tensors(config.options.layers)) {
    options.rename.push_back({from, to});
  }
  libtrain::load_weights(model, path(safetensors ? "model.safetensors" : "pytorch_model.bin"), options);
}
