#include <libtrain/text/detail/post_processor.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

using Kind = TemplatePiece::Kind;

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

TemplatePiece special_piece(const JsonPlace& place, const std::string& name, const JsonPlace& specials,
                            const TokenizerDefinition& definition) {
  if (!specials.has(name)) place.refuse("a token that 'special_tokens' has", kFixIds);
  const JsonPlace special = specials.member(name);
  special.require_members({"id", "ids", "tokens"});
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
                                         const JsonPlace& specials, const TokenizerDefinition& definition) {
  std::vector<TemplatePiece> pieces;
  std::size_t found = 0;
  for (std::size_t i = 0; i < place.size(); ++i) {
    const JsonPlace piece = place.element(i);
    piece.require_members({"Sequence", "SpecialToken"});
    const bool is_text = piece.has("Sequence");
    const JsonPlace value = piece.member(is_text ? "Sequence" : "SpecialToken");
    value.require_members({"id", "type_id"});
    const JsonPlace name = value.member("id");
    if (!is_text) {
      pieces.push_back(special_piece(name, name.string(), specials, definition));
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
  const JsonPlace specials = place.member("special_tokens");
  if (!specials.value().is_object()) specials.refuse("an object", kFixIds);
  definition.single = read_template(place.member("single"), {"A"}, specials, definition);
  definition.pair = read_template(place.member("pair"), {"A", "B"}, specials, definition);
}

}  // namespace

void read_post_processor(const JsonPlace& place, TokenizerDefinition& definition) {
  definition.post_processor = place.value().dump();
  if (place.is_null()) return;
  const JsonPlace type = place.member("type");
  if (type.string() == "RobertaProcessing") return read_roberta(place, definition);
  if (type.string() == "TemplateProcessing") return read_templates(place, definition);
  if (type.string() != "ByteLevel") {
    type.refuse("RobertaProcessing, TemplateProcessing or ByteLevel", "Use a tokenizer for RoBERTa or GPT-2.");
  }
  place.require_members({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  read_trimming(place, definition);
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
