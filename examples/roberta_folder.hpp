#pragma once

#include <filesystem>
#include <string>

#include <torch/nn/module.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/models/roberta/roberta.hpp>

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
