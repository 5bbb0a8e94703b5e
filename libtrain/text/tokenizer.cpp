#include <libtrain/text/tokenizer.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/text/detail/tokenizer_config.hpp>
#include <libtrain/text/detail/tokenizer_core.hpp>
#include <libtrain/text/detail/tokenizer_files.hpp>
#include <libtrain/text/detail/utf8.hpp>

namespace libtrain {

namespace {

using detail::TemplatePiece;

std::size_t special_count(const std::vector<TemplatePiece>& pieces) {
  std::size_t count = 0;
  for (const auto& piece : pieces) count += piece.ids.size();
  return count;
}

// The tokens that two texts keep of at most `limit`, as in Hugging Face's longest_first.
std::pair<std::size_t, std::size_t> kept_of_pair(std::size_t first, std::size_t second, std::size_t limit) {
  if (first + second <= limit) return {first, second};
  std::size_t shorter = std::min(first, second);
  std::size_t longer = shorter > limit ? shorter : std::max(shorter, limit - shorter);
  if (shorter + longer > limit) {
    shorter = limit / 2;
    longer = shorter + limit % 2;
  }
  return first > second ? std::pair{longer, shorter} : std::pair{shorter, longer};
}

void append_text(const detail::TextTokens& tokens, std::size_t kept, bool with_offsets, Encoding& encoding) {
  encoding.truncated |= kept < tokens.size;
  const auto count = static_cast<std::ptrdiff_t>(kept);
  encoding.ids.insert(encoding.ids.end(), tokens.ids.begin(), tokens.ids.begin() + count);
  if (!with_offsets) return;
  encoding.offsets.insert(encoding.offsets.end(), tokens.offsets.begin(), tokens.offsets.begin() + count);
}

Encoding assemble(const std::vector<TemplatePiece>& pieces, const std::array<detail::TextTokens, 2>& texts,
                  const std::array<std::size_t, 2>& kept, const EncodeOptions& options) {
  Encoding encoding;
  const std::size_t specials = options.special_tokens ? special_count(pieces) : 0;
  encoding.ids.reserve(kept[0] + kept[1] + specials);
  if (options.offsets) encoding.offsets.reserve(encoding.ids.capacity());
  bool has_second = false;
  for (const auto& piece : pieces) {
    if (piece.kind != TemplatePiece::Kind::special) {
      const bool is_second = piece.kind == TemplatePiece::Kind::second_text;
      if (is_second) encoding.second_begin = encoding.ids.size();
      has_second |= is_second;
      append_text(texts[is_second ? 1 : 0], kept[is_second ? 1 : 0], options.offsets, encoding);
    } else if (options.special_tokens) {
      encoding.ids.insert(encoding.ids.end(), piece.ids.begin(), piece.ids.end());
      if (options.offsets) encoding.offsets.resize(encoding.ids.size());
    }
  }
  if (!has_second) encoding.second_begin = encoding.ids.size();
  return encoding;
}

// How many tokens of texts an encoding may have.
std::size_t text_limit(const detail::TokenizerDefinition& definition, const std::vector<TemplatePiece>& pieces,
                       const EncodeOptions& options) {
  const auto limit = options.max_tokens ? options.max_tokens : definition.max_tokens;
  if (!limit) return ~std::size_t{0};
  const std::size_t specials = options.special_tokens ? special_count(pieces) : 0;
  if (*limit >= specials) return *limit - specials;
  throw UsageError(text("max_tokens is ", *limit, ", and the special tokens around the text alone are ", specials,
                        ". Set max_tokens to at least ", specials, "."));
}

[[noreturn]] void refuse_id(std::int64_t id, const detail::TokenizerDefinition& definition) {
  throw UsageError(text("The vocabulary has no token with the id ", id, "; its ids are below ",
                        definition.tokens.size(), ". Use the tokenizer that made the ids."));
}

detail::TokenizerDefinition read_definition(const std::string& path) {
  std::error_code error;  // which reading the file then reports
  if (!std::filesystem::is_directory(path, error)) return detail::read_tokenizer_json(path);
  const std::string config = path + "/tokenizer_config.json";
  const auto add_prefix_space = [&](bool otherwise) {
    return detail::may_be_read(config) ? detail::read_add_prefix_space(config, otherwise) : otherwise;
  };
  const std::string whole = path + "/tokenizer.json";
  if (detail::may_be_read(whole)) {
    auto definition = detail::read_tokenizer_json(whole);
    detail::require_same_tokens(path, definition, detail::ComparedFlags::all);
    // With some classes transformers follows the configuration here, which changes the ids.
    if (definition.add_prefix_space == add_prefix_space(definition.add_prefix_space)) return definition;
    throw EnvironmentError(text("Files '", whole, "' and '", config,
                                "' do not have the same 'add_prefix_space'. Set both to that of the training."));
  }
  const std::string vocabulary = path + "/vocab.json";
  const std::string merges = path + "/merges.txt";
  if (detail::may_be_read(vocabulary) && detail::may_be_read(merges)) {
    auto definition = detail::read_vocabulary_and_merges(vocabulary, merges);
    detail::require_same_tokens(path, definition, detail::ComparedFlags::all_but_normalized);
    definition.add_prefix_space = add_prefix_space(definition.add_prefix_space);
    return definition;
  }
  throw EnvironmentError(text("Folder '", path, "' has no tokenizer.json, and not both of vocab.json and merges.txt. ",
                              "Copy them there, or name the folder that has them."));
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const detail::TokenizerCore> core) : core_(std::move(core)) {}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const auto& definition = core_->definition();
  const std::size_t limit = text_limit(definition, definition.single, options);
  detail::TokenizerCore::Lease lease(*core_);
  auto& tokens = (*lease).tokens;
  core_->encode(text, options.offsets, *lease, tokens[0]);
  return assemble(definition.single, tokens, {std::min(tokens[0].size, limit), 0}, options);
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options) const {
  const auto& definition = core_->definition();
  const std::size_t limit = text_limit(definition, definition.pair, options);
  detail::TokenizerCore::Lease lease(*core_);
  auto& tokens = (*lease).tokens;
  core_->encode(first, options.offsets, *lease, tokens[0]);
  core_->encode(second, options.offsets, *lease, tokens[1]);
  const auto [first_kept, second_kept] = kept_of_pair(tokens[0].size, tokens[1].size, limit);
  return assemble(definition.pair, tokens, {first_kept, second_kept}, options);
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, const DecodeOptions& options) const {
  std::string bytes;
  for (const std::int64_t id : ids) {
    if (!core_->has(id)) refuse_id(id, core_->definition());
    if (options.special_tokens || !core_->is_special(id)) bytes += core_->bytes_of(id);
  }
  return detail::replace_invalid_utf8(bytes);
}

std::int64_t Tokenizer::vocabulary_size() const {
  return static_cast<std::int64_t>(core_->definition().tokens.size());
}

const SpecialTokens& Tokenizer::special_tokens() const {
  return core_->special_tokens();
}

std::vector<std::int64_t> Tokenizer::special_ids() const {
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < vocabulary_size(); ++id)
    if (core_->is_special(id)) ids.push_back(id);
  const auto& named = special_tokens();
  for (const auto& id : {named.bos, named.pad, named.eos, named.unknown, named.mask})
    if (id) ids.push_back(*id);
  std::ranges::sort(ids);
  const auto repeated = std::ranges::unique(ids);
  ids.erase(repeated.begin(), repeated.end());
  return ids;
}

std::optional<std::size_t> Tokenizer::max_tokens() const {
  return core_->definition().max_tokens;
}

const std::string& Tokenizer::token(std::int64_t id) const {
  if (!core_->has(id)) refuse_id(id, core_->definition());
  return core_->definition().tokens[static_cast<std::size_t>(id)];
}

std::optional<std::int64_t> Tokenizer::find(std::string_view token) const {
  const std::uint32_t* const id = core_->find(token);
  return id == nullptr ? std::nullopt : std::optional<std::int64_t>(*id);
}

Tokenizer read_tokenizer(const std::string& path) {
  return Tokenizer(std::make_shared<const detail::TokenizerCore>(read_definition(path)));
}

}  // namespace libtrain
