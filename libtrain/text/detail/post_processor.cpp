#include <libtrain/text/detail/post_processor.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

using Kind = TemplatePiece::Kind;

using SpecialPieces = std::map<std::string, TemplatePiece>;

constexpr std::uint64_t kTypeIds = std::uint64_t{1} << 32U;  // type ids are below
constexpr const char* kFixIds = "The file contradicts itself: get it again, or correct the id.";

// The id of a special token, which must be the one of this content in the vocabulary.
std::int64_t special_id(const JsonPlace& place, const std::string& content, const TokenizerDefinition& definition) {
  const std::uint64_t id = place.integer(TokenizerDefinition::kIds);
  if (id >= definition.tokens.size() || definition.tokens[id] != content) {
    place.refuse(text("the id of '", content, "' in the vocabulary"), kFixIds);
  }
  return static_cast<std::int64_t>(id);
}

// ["</s>", 2]
std::int64_t named_id(const JsonPlace& place, const TokenizerDefinition& definition) {
  if (place.size() != 2) place.refuse("a token and its id", kFixIds);
  return special_id(place.element(1), place.element(0).string(), definition);
}

void read_trimming(const JsonPlace& place, TokenizerDefinition& definition) {
  definition.trim_offsets = place.member("trim_offsets").flag();
  definition.trim_keeps_first_space = place.member("add_prefix_space").flag();
}

void read_roberta(const JsonPlace& place, TokenizerDefinition& definition) {
  place.require_members({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
  const std::int64_t begin = named_id(place.member("cls"), definition);
  const std::int64_t end = named_id(place.member("sep"), definition);
  definition.single = {{Kind::special, {begin}}, {Kind::first_text, {}}, {Kind::special, {end}}};
  definition.pair = {{Kind::special, {begin}},
                     {Kind::first_text, {}},
                     {Kind::special, {end, end}},
                     {Kind::second_text, {}},
                     {Kind::special, {end}}};
  read_trimming(place, definition);
}

TemplatePiece special_piece(const JsonPlace& special, const TokenizerDefinition& definition) {
  special.require_members({"id", "ids", "tokens"});
  special.member("id").string();
  const JsonPlace ids = special.member("ids");
  const JsonPlace tokens = special.member("tokens");
  if (ids.size() != tokens.size()) ids.refuse("as many ids as 'tokens'", kFixIds);
  TemplatePiece piece;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    piece.ids.push_back(special_id(ids.element(i), tokens.element(i).string(), definition));
  }
  return piece;
}

// The pieces of 'single' or 'pair'. The type ids of a template, which RoBERTa and GPT-2 have no use for, are not kept.
std::vector<TemplatePiece> read_template(const JsonPlace& place, const std::vector<std::string>& texts,
                                         const SpecialPieces& specials) {
  std::vector<TemplatePiece> pieces;
  std::size_t found = 0;
  for (std::size_t i = 0; i < place.size(); ++i) {
    const JsonPlace piece = place.element(i);
    piece.require_members({"Sequence", "SpecialToken"});
    const bool is_text = piece.has("Sequence");
    const JsonPlace value = piece.member(is_text ? "Sequence" : "SpecialToken");
    value.require_members({"id", "type_id"});
    value.member("type_id").integer(kTypeIds);
    const JsonPlace name = value.member("id");
    if (!is_text) {
      const auto special = specials.find(name.string());
      if (special == specials.end()) name.refuse("a token that 'special_tokens' has", kFixIds);
      pieces.push_back(special->second);
      continue;
    }
    if (found == texts.size() || name.string() != texts[found]) {
      name.refuse(text("each of ", join(texts, ", "), " once, in this order"), "Change the template.");
    }
    pieces.push_back({.kind = found++ == 0 ? Kind::first_text : Kind::second_text});
  }
  if (found != texts.size()) place.refuse(text("each of ", join(texts, ", "), " once"), "Change the template.");
  return pieces;
}

void read_templates(const JsonPlace& place, TokenizerDefinition& definition) {
  place.require_members({"type", "single", "pair", "special_tokens"});
  const JsonPlace tokens = place.member("special_tokens");
  if (!tokens.value().is_object()) tokens.refuse("an object", kFixIds);
  SpecialPieces specials;
  for (const auto& [name, value] : tokens.value().get_ref<const nlohmann::json::object_t&>()) {
    specials.emplace(name, special_piece(tokens.member(name), definition));
  }
  definition.single = read_template(place.member("single"), {"A"}, specials);
  definition.pair = read_template(place.member("pair"), {"A", "B"}, specials);
}

}  // namespace

void read_post_processor(const JsonPlace& place, TokenizerDefinition& definition) {
  if (place.is_null()) return;
  const JsonPlace type = place.member("type");
  if (type.string() == "RobertaProcessing") {
    read_roberta(place, definition);
  } else if (type.string() == "TemplateProcessing") {
    read_templates(place, definition);
  } else if (type.string() == "ByteLevel") {
    place.require_members({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (place.has("use_regex")) place.member("use_regex").flag();
    read_trimming(place, definition);
  } else {
    type.refuse("RobertaProcessing, TemplateProcessing or ByteLevel", "Use a tokenizer for RoBERTa or GPT-2.");
  }
  // dump() calls itself for what is within an object or a list: now no part is deep.
  definition.post_processor = place.value().dump();
}

void use_special_tokens(const std::vector<std::string>& names, TokenizerDefinition& definition) {
  const auto id_of = [&](const std::string& name) -> std::optional<std::uint32_t> {
    const auto found = std::ranges::find(definition.tokens, name);
    if (found == definition.tokens.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - definition.tokens.begin());
  };
  const auto is_special = [&](const char* name) {
    return std::ranges::find(names, name) != names.end() && id_of(name);
  };
  for (const std::string& name : names) {
    if (const auto id = id_of(name)) {
      definition.added_tokens.push_back({.id = *id, .content = name, .lstrip = name == "<mask>", .special = true});
    }
  }
  if (!is_special("<s>") || !is_special("</s>")) return;
  const nlohmann::json processor{{"type", "RobertaProcessing"},
                                 {"sep", nlohmann::json::array({"</s>", *id_of("</s>")})},
                                 {"cls", nlohmann::json::array({"<s>", *id_of("<s>")})},
                                 {"trim_offsets", true},
                                 {"add_prefix_space", definition.add_prefix_space}};
  read_post_processor(JsonPlace(processor, {}), definition);
}

}  // namespace libtrain::detail
