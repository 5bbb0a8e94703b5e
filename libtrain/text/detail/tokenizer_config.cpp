#include <libtrain/text/detail/tokenizer_config.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include <libtrain/base/text.hpp>
#include <libtrain/text/detail/json_place.hpp>
#include <libtrain/text/detail/tokenizer_files.hpp>

namespace libtrain::detail {

namespace {

using Json = nlohmann::json;

constexpr const char* kSaveAgain =
    "transformers applies this file, too: save the tokenizer by its save_pretrained, which writes all tokens to "
    "tokenizer.json.";

// Compares what files say of tokens with the added tokens of a definition.
class TokenComparison {
 public:
  TokenComparison(const TokenizerDefinition& definition, ComparedFlags compared)
      : definition_(definition), compared_(compared) {
    for (const AddedToken& token : definition.added_tokens) tokens_.emplace(token.content, &token);
  }

  // 'added_tokens_decoder': all added tokens with their flags, by id.
  void compare_all(const JsonPlace& place) const {
    if (!place.value().is_object()) place.refuse("an object of ids and tokens", kSaveAgain);
    for (const auto& [id, value] : place.value().get_ref<const Json::object_t&>()) compare(place.member(id), id);
    for (const AddedToken& token : definition_.added_tokens) {
      if (!place.has(std::to_string(token.id))) {
        place.refuse(text("'", token.content, "' with the id ", token.id, " in it"), kSaveAgain);
      }
    }
  }

  // An added_tokens.json: ids by token.
  void compare_ids(const JsonPlace& file) const {
    if (!file.value().is_object()) file.refuse("an object of tokens and ids", kSaveAgain);
    for (const auto& [content, value] : file.value().get_ref<const Json::object_t&>()) {
      const JsonPlace id = file.member(content);
      const auto found = tokens_.find(content);
      if (found == tokens_.end()) id.refuse(text("only added tokens here, which '", content, "' is not"), kSaveAgain);
      if (id.integer(TokenizerDefinition::kIds) != found->second->id) {
        id.refuse(text("the id ", found->second->id, " of '", content, "'"), kSaveAgain);
      }
    }
  }

  // The members of a tokenizer_config.json or special_tokens_map.json that make tokens special. transformers adds those
  // that are no added tokens, and does not look at the flags of the others.
  void compare_special(const JsonPlace& file) const {
    if (!file.value().is_object()) file.refuse("an object", kSaveAgain);
    for (const auto& [name, value] : file.value().get_ref<const Json::object_t&>()) {
      if (name.ends_with("_token") && (value.is_string() || value.is_object())) find(file.member(name));
    }
    for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) {
      if (!file.has(name) || file.member(name).is_null()) continue;
      const JsonPlace tokens = file.member(name);
      if (tokens.value().is_object()) {
        for (const auto& [key, value] : tokens.value().get_ref<const Json::object_t&>()) find(tokens.member(key));
      } else {
        for (std::size_t i = 0; i < tokens.size(); ++i) find(tokens.element(i));
      }
    }
  }

 private:
  // The added token of a string, or of an object with its 'content'.
  const AddedToken& find(const JsonPlace& place) const {
    const JsonPlace content = place.value().is_object() ? place.member("content") : place;
    const auto found = tokens_.find(content.string());
    if (found == tokens_.end()) content.refuse("one of the added tokens", kSaveAgain);
    return *found->second;
  }

  void compare(const JsonPlace& place, const std::string& id) const {
    const AddedToken& token = find(place);
    if (id != std::to_string(token.id)) {
      place.member("content").refuse(text("another token: the id of this one is ", token.id), kSaveAgain);
    }
    const std::array<std::pair<const char*, bool>, 5> flags{{{"single_word", token.single_word},
                                                             {"lstrip", token.lstrip},
                                                             {"rstrip", token.rstrip},
                                                             {"special", token.special},
                                                             {"normalized", token.normalized}}};
    for (const auto& [name, flag] : flags) {
      const bool is_compared = compared_ == ComparedFlags::all || name != std::string_view{"normalized"};
      if (is_compared && place.member(name).flag() != flag) {
        place.member(name).refuse(text(flag ? "true" : "false", ", as '", token.content, "' has it"), kSaveAgain);
      }
    }
  }

  const TokenizerDefinition& definition_;
  const ComparedFlags compared_;
  std::unordered_map<std::string, const AddedToken*> tokens_ = {};
};

}  // namespace

bool read_add_prefix_space(const std::string& path, bool otherwise) {
  const Json json = read_json(path);
  const JsonPlace file(json, path);
  const bool says_it = file.has("add_prefix_space") && !file.member("add_prefix_space").is_null();
  return says_it ? file.member("add_prefix_space").flag() : otherwise;
}

void require_same_tokens(const std::string& folder, const TokenizerDefinition& definition, ComparedFlags compared) {
  const TokenComparison comparison(definition, compared);
  // Calls visit(JsonPlace) for a file that exists.
  const auto with_file = [&](const char* name, const auto& visit) {
    const std::string path = text(folder, '/', name);
    if (!may_be_read(path)) return;
    const Json json = read_json(path);
    visit(JsonPlace(json, path));
  };
  const auto compare_special = [&](const JsonPlace& file) { comparison.compare_special(file); };
  bool has_all = false;
  with_file("tokenizer_config.json", [&](const JsonPlace& file) {
    comparison.compare_special(file);
    has_all = file.has("added_tokens_decoder");
    if (has_all) comparison.compare_all(file.member("added_tokens_decoder"));
  });
  if (has_all) return;  // transformers then does not read the others
  with_file("special_tokens_map.json", compare_special);
  with_file("added_tokens.json", [&](const JsonPlace& file) { comparison.compare_ids(file); });
}

}  // namespace libtrain::detail
