#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/text/detail/tokenizer_core.hpp>
#include <libtrain/text/tokenizer.hpp>

namespace libtrain {

namespace {

using Json = nlohmann::ordered_json;
using detail::TokenizerDefinition;

// The tokens of the BPE model, in the order of their ids.
Json vocabulary_json(const TokenizerDefinition& definition) {
  std::vector<bool> is_in_model(definition.tokens.size(), true);
  for (const auto& token : definition.added_tokens) is_in_model[token.id] = token.in_model;
  Json vocabulary = Json::object();
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < definition.tokens.size(); ++id) {
    // Not operator[], which looks for the key in all entries.
    if (is_in_model[id] && !definition.tokens[id].empty()) entries.emplace_back(definition.tokens[id], id);
  }
  return vocabulary;
}

std::vector<std::string> merge_lines(const TokenizerDefinition& definition) {
  std::vector<std::string> lines;
  lines.reserve(definition.merges.size());
  for (const auto& [left, right] : definition.merges) {
    lines.push_back(definition.tokens[left] + ' ' + definition.tokens[right]);
  }
  return lines;
}

Json byte_level(const TokenizerDefinition& definition) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", definition.add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", true}};
}

Json tokenizer_json(const TokenizerDefinition& definition, Json vocabulary, const std::vector<std::string>& merges,
                    const std::optional<std::size_t>& max_tokens) {
  Json added = Json::array();
  for (const auto& token : definition.added_tokens) {
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  Json truncation = nullptr;
  if (max_tokens) {
    truncation = {{"direction", "Right"}, {"max_length", *max_tokens}, {"strategy", "LongestFirst"}, {"stride", 0}};
  }
  return {{"version", "1.0"},
          {"truncation", truncation},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level(definition)},
          {"post_processor", Json::parse(definition.post_processor)},
          {"decoder", byte_level(definition)},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", std::move(vocabulary)},
            {"merges", merges}}}};
}

// For transformers: with a class of its own for RoBERTa it would not do all that tokenizer.json says.
Json tokenizer_config(const Tokenizer& tokenizer, const std::optional<std::size_t>& max_tokens) {
  const auto& special = tokenizer.special_tokens();
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"add_prefix_space", tokenizer.core().definition().add_prefix_space},
              {"model_input_names", {"input_ids", "attention_mask"}}};
  if (max_tokens) config["model_max_length"] = *max_tokens;
  const auto& added = tokenizer.core().definition().added_tokens;
  const auto add = [&](const std::optional<std::int64_t>& id, std::initializer_list<const char*> roles) {
    // Of a token that is not looked for in texts, transformers would make one that is.
    if (!id || std::ranges::find(added, *id, &detail::AddedToken::id) == added.end()) return;
    for (const auto* role : roles) config[role] = tokenizer.token(*id);
  };
  add(special.bos, {"bos_token", "cls_token"});
  add(special.pad, {"pad_token"});
  add(special.eos, {"eos_token", "sep_token"});
  add(special.unknown, {"unk_token"});
  add(special.mask, {"mask_token"});
  return config;
}

void write_file(const std::string& path, std::string_view content) {
  detail::OutputFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace

void write_tokenizer(const Tokenizer& tokenizer, const std::string& folder,
                     const std::optional<std::size_t>& max_tokens) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw EnvironmentError(text("Folder '", folder, "' for a tokenizer cannot be made: ", error.message(),
                                ". Choose a folder that you may write to."));
  }
  const TokenizerDefinition& definition = tokenizer.core().definition();
  Json vocabulary = vocabulary_json(definition);
  const std::vector<std::string> merges = merge_lines(definition);
  write_file(folder + "/vocab.json", vocabulary.dump() + '\n');
  write_file(folder + "/merges.txt", "#version: 0.2\n" + (merges.empty() ? "" : join(merges, "\n") + '\n'));
  const auto& limit = max_tokens ? max_tokens : definition.max_tokens;
  write_file(folder + "/tokenizer.json",
             tokenizer_json(definition, std::move(vocabulary), merges, limit).dump(2) + '\n');
  write_file(folder + "/tokenizer_config.json", tokenizer_config(tokenizer, limit).dump(2) + '\n');
}

}  // namespace libtrain
