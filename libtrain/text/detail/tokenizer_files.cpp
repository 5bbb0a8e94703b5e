#include <libtrain/text/detail/tokenizer_files.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/text/detail/byte_alphabet.hpp>
#include <libtrain/text/detail/json_place.hpp>
#include <libtrain/text/detail/post_processor.hpp>

namespace libtrain::detail {

namespace {

using Json = nlohmann::json;
using Ids = std::unordered_map<std::string_view, std::uint32_t>;  // the tokens are those of the file's JSON

constexpr const char* kOtherTokenizer = "libtrain reads byte-level BPE tokenizers as RoBERTa and GPT-2 have them.";
constexpr const char* kGetAgain = "Get the file again.";

std::string read_whole(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string content;
  std::array<char, 1 << 16> piece;
  // Not by an iterator, which throws an exception of its own where reading fails: for a folder, for one.
  while (file.read(piece.data(), piece.size()), file.gcount() > 0) {
    content.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.is_open() && !file.bad()) return content;
  throw EnvironmentError(text("File '", path, "' of a tokenizer cannot be read: ",
                              std::generic_category().message(errno), ". Check the path and its permissions."));
}

// Ids may leave gaps, but no table of all ids becomes much larger than the file.
std::uint64_t id_limit(std::size_t tokens) {
  return std::min<std::uint64_t>(2 * std::uint64_t{tokens} + 1000, TokenizerDefinition::kIds);
}

// `name`: of the member of `place` that says the id.
void set_token(const JsonPlace& place, const std::string& name, const std::string& content, std::uint64_t id,
               TokenizerDefinition& definition) {
  if (id >= definition.tokens.size()) definition.tokens.resize(id + 1);
  std::string& token = definition.tokens[id];
  if (!token.empty()) {
    place.member(name).refuse(text("an id of its own, because '", token, "' has this one"), kGetAgain);
  }
  token = content;
}

Ids read_vocabulary(const JsonPlace& place, TokenizerDefinition& definition) {
  if (!place.value().is_object()) place.refuse("an object of tokens and their ids", kGetAgain);
  Ids ids;
  ids.reserve(place.value().size());
  const std::uint64_t limit = id_limit(place.value().size());
  for (const auto& entry : place.value().get_ref<const Json::object_t&>()) {
    const auto& [token, value] = entry;
    const bool is_id = value.is_number_unsigned() && value.get<std::uint64_t>() < limit;
    if (!is_id) place.member(token).integer(limit);
    if (token.empty()) place.member(token).refuse("a token of at least one character", kGetAgain);
    const auto id = value.get<std::uint32_t>();
    set_token(place, token, token, id, definition);
    ids.emplace(token, id);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string& letter = letter_of_byte(static_cast<std::uint8_t>(byte));
    if (!ids.contains(letter)) {
      place.refuse(text("a token '", letter, "' for the byte ", byte, " in it"),
                   "Train the vocabulary with the 256 bytes as its initial alphabet.");
    }
  }
  return ids;
}

// Adds merges one after the other. `where` says for messages where a merge is.
class MergeReader {
 public:
  MergeReader(const Ids& ids, TokenizerDefinition& definition)
      : ids_(ids), definition_(definition), spelling_(definition.tokens.size(), Spelling::unknown) {}

  template <typename Where>
  void add(std::string_view left, std::string_view right, const Where& where) {
    const std::uint32_t left_id = id_of(left, where);
    const std::uint32_t right_id = id_of(right, where);
    merged_.assign(left).append(right);
    id_of(merged_, where);
    if (!seen_.insert((std::uint64_t{left_id} << 32U) | right_id).second) {
      fail(where, text("'", left, " ", right, "' is there a second time"));
    }
    definition_.merges.emplace_back(left_id, right_id);
  }

  // Adds what is written with a space between.
  template <typename Where>
  void add(std::string_view pair, const Where& where) {
    const std::size_t space = pair.find(' ');
    if (space == std::string_view::npos) fail(where, text("'", pair, "' is not two tokens"));
    add(pair.substr(0, space), pair.substr(space + 1), where);
  }

 private:
  enum class Spelling : std::uint8_t { unknown, of_bytes };

  template <typename Where>
  [[noreturn]] static void fail(const Where& where, const std::string& fault) {
    throw EnvironmentError(
        text(where(), ": ", fault, ". Get the files of the tokenizer again: they must fit together."));
  }

  template <typename Where>
  std::uint32_t id_of(std::string_view token, const Where& where) {
    const auto found = ids_.find(token);
    if (found == ids_.end()) fail(where, text("the vocabulary has no token '", token, "'"));
    Spelling& spelling = spelling_[found->second];
    if (spelling == Spelling::unknown && !bytes_of_token(token)) {
      fail(where, text("'", token, "' has a character that stands for no byte"));
    }
    spelling = Spelling::of_bytes;
    return found->second;
  }

  const Ids& ids_;
  TokenizerDefinition& definition_;
  std::vector<Spelling> spelling_;  // by id
  std::unordered_set<std::uint64_t> seen_ = {};
  std::string merged_ = {};
};

void read_merges(const JsonPlace& place, const std::string& path, const Ids& ids, TokenizerDefinition& definition) {
  MergeReader reader(ids, definition);
  const std::size_t count = place.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Json& merge = place.value()[i];
    const auto where = [&] { return text("File '", path, "', 'model.merges[", i, "]'"); };
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      reader.add(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), where);
    } else {
      reader.add(place.element(i).string(), where);
    }
  }
}

void read_merges_file(const std::string& path, const Ids& ids, TokenizerDefinition& definition) {
  const std::string content = read_whole(path);
  MergeReader reader(ids, definition);
  std::size_t number = 0;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    std::string_view line = std::string_view{content}.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    reader.add(line, [&] { return text("File '", path, "', line ", number); });
  }
}

void require_null(const JsonPlace& place, const std::string& advice) {
  if (!place.is_null()) place.refuse("null", advice);
}

// Null, or a value that changes nothing.
void require_neutral(const JsonPlace& model, const std::string& name, const Json& neutral) {
  if (!model.has(name)) return;
  const JsonPlace place = model.member(name);
  if (!place.is_null() && place.value() != neutral) place.refuse(text("null or ", neutral.dump()), kOtherTokenizer);
}

Ids read_model(const JsonPlace& model, const std::string& path, TokenizerDefinition& definition) {
  model.require_members({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                         "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("type") && model.member("type").string() != "BPE") model.member("type").refuse("BPE", kOtherTokenizer);
  require_neutral(model, "dropout", 0.0);
  require_neutral(model, "continuing_subword_prefix", "");
  require_neutral(model, "end_of_word_suffix", "");
  require_neutral(model, "byte_fallback", false);
  require_neutral(model, "ignore_merges", false);
  // No byte is unknown, so that nothing becomes unk_token, and fuse_unk changes nothing.
  if (model.has("unk_token") && !model.member("unk_token").is_null()) model.member("unk_token").string();
  if (model.has("fuse_unk")) model.member("fuse_unk").flag();
  const Ids ids = read_vocabulary(model.member("vocab"), definition);
  read_merges(model.member("merges"), path, ids, definition);
  return ids;
}

void read_added_tokens(const JsonPlace& place, const Ids& ids, TokenizerDefinition& definition) {
  std::unordered_set<std::string> seen;
  std::uint64_t next_id =
      ids.size();  // of a token that the model does not have, in `tokenizers`, whatever the file says
  for (std::size_t i = 0; i < place.size(); ++i) {
    const JsonPlace token = place.element(i);
    token.require_members({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const JsonPlace id = token.member("id");
    AddedToken added{.id = static_cast<std::uint32_t>(id.integer(id_limit(ids.size() + place.size()))),
                     .content = token.member("content").string(),
                     .single_word = token.member("single_word").flag(),
                     .lstrip = token.member("lstrip").flag(),
                     .rstrip = token.member("rstrip").flag(),
                     .normalized = token.member("normalized").flag(),
                     .special = token.member("special").flag()};
    if (added.content.empty() || !seen.insert(added.content).second) {
      token.member("content").refuse("a token that is not empty, and that no other is equal to", kGetAgain);
    }
    const auto in_model = ids.find(added.content);
    added.in_model = in_model != ids.end();
    if (!added.in_model) {
      if (added.id != next_id) {
        id.refuse(text(next_id, ", which `tokenizers` gives to '", added.content, "'"),
                  "Add tokens in the order of their ids, without gaps after the vocabulary.");
      }
      set_token(token, "id", added.content, added.id, definition);
    } else if (in_model->second != added.id) {
      id.refuse(text("the id ", in_model->second, " that '", added.content, "' has in the vocabulary"), kGetAgain);
    }
    next_id = std::max(next_id, std::uint64_t{added.id} + 1);
    definition.added_tokens.push_back(std::move(added));
  }
}

void read_truncation(const JsonPlace& place, TokenizerDefinition& definition) {
  if (place.is_null()) return;
  place.require_members({"direction", "max_length", "strategy", "stride"});
  constexpr const char* kAdvice = "Set 'truncation' to null, and EncodeOptions::max_tokens in the program.";
  const auto require = [&](const char* name, const Json& value) {
    if (place.has(name) && place.member(name).value() != value) place.member(name).refuse(value.dump(), kAdvice);
  };
  require("direction", "Right");
  require("strategy", "LongestFirst");
  require("stride", 0);
  definition.max_tokens = place.member("max_length").integer(std::uint64_t{1} << 32U);
}

void require_byte_level(const JsonPlace& place) {
  if (!place.has("type") || place.member("type").value() != "ByteLevel") {
    (place.has("type") ? place.member("type") : place).refuse("ByteLevel", kOtherTokenizer);
  }
  place.require_members({"type", "add_prefix_space", "trim_offsets", "use_regex"});
}

}  // namespace

bool may_be_read(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) || error;
}

Json read_json(const std::string& path) {
  const std::string content = read_whole(path);
  try {
    return Json::parse(content);
  } catch (const Json::parse_error& error) {
    throw EnvironmentError(
        text("File '", path, "' is not JSON at byte ", error.byte, " of ", content.size(), ". ", kGetAgain));
  } catch (const Json::out_of_range&) {
    throw EnvironmentError(text("File '", path, "' has a number beyond those of a double. ", kGetAgain));
  }
}

TokenizerDefinition read_tokenizer_json(const std::string& path) {
  const Json json = read_json(path);
  const JsonPlace file(json, path);
  file.require_members({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                        "post_processor", "decoder", "model"});
  TokenizerDefinition definition;
  const Ids ids = read_model(file.member("model"), path, definition);
  if (file.has("added_tokens")) read_added_tokens(file.member("added_tokens"), ids, definition);
  if (file.has("normalizer")) require_null(file.member("normalizer"), kOtherTokenizer);
  if (file.has("padding")) {
    require_null(file.member("padding"), "Set 'padding' to null: batches are padded when they are made.");
  }
  if (file.has("truncation")) read_truncation(file.member("truncation"), definition);
  const JsonPlace pre_tokenizer = file.member("pre_tokenizer");
  require_byte_level(pre_tokenizer);
  definition.add_prefix_space = pre_tokenizer.member("add_prefix_space").flag();
  require_neutral(pre_tokenizer, "use_regex", true);
  require_byte_level(file.member("decoder"));
  if (file.has("post_processor")) read_post_processor(file.member("post_processor"), definition);
  return definition;
}

// RoBERTa's tokens where the vocabulary has them, else GPT-2's.
TokenizerDefinition read_vocabulary_and_merges(const std::string& vocabulary, const std::string& merges) {
  TokenizerDefinition definition;
  const Json json = read_json(vocabulary);
  const Ids ids = read_vocabulary(JsonPlace(json, vocabulary), definition);
  read_merges_file(merges, ids, definition);
  const bool is_roberta = ids.contains("<s>") && ids.contains("</s>");
  using Names = std::vector<std::string>;
  const Names names = is_roberta ? Names{"<s>", "<pad>", "</s>", "<unk>", "<mask>"} : Names{"<|endoftext|>"};
  use_special_tokens(names, definition);
  return definition;
}

}  // namespace libtrain::detail
