#include <libtrain/text/detail/tokenizer_core.hpp>

#include <algorithm>
#include <cstring>
#include <optional>

#include <simdjson.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/text/detail/byte_alphabet.hpp>
#include <libtrain/text/detail/utf8.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 31;  // of a text
constexpr std::size_t kKeptBytes = std::size_t{1} << 20;  // of what grows with a text, when it is done
// Ids of cached words are copied in one piece, which is longer than most.
constexpr std::size_t kSlack = WordCache::kTokens;

void require_size(std::size_t bytes, const char* when) {
  if (bytes < kMostBytes) return;
  throw UsageError(
      text("A text has ", bytes, " bytes", when, ", and a tokenizer takes fewer than ", kMostBytes, ". Split it."));
}

std::uint32_t count_characters(std::string_view text) {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U; }));
}

}  // namespace

std::size_t EncodeWorkspace::growing_bytes() const {
  std::size_t bytes = merger.memory_bytes() + prefixed.capacity();
  for (const TextTokens& each : tokens) {
    bytes += each.ids.capacity() * sizeof(std::uint32_t) + each.offsets.capacity() * sizeof(TextRange);
  }
  return bytes;
}

void EncodeWorkspace::release() noexcept {
  merger = {};
  std::string{}.swap(prefixed);  // an assignment would leave it its memory
  tokens = {};
}

// One text on its way.
struct TokenizerCore::Task {
  std::string_view text = {};
  bool with_offsets = false;
  EncodeWorkspace& workspace;
  TextTokens& tokens;

  // Makes room for the tokens of `bytes` bytes.
  void reserve(std::size_t bytes) {
    const std::size_t most = tokens.size + bytes + kSlack;
    if (tokens.ids.size() < most) tokens.ids.resize(std::max(most, 2 * tokens.ids.size()));
  }
};

// A part of the text that is split into words, as far as `at`.
struct TokenizerCore::Words {
  std::string_view text = {};
  std::size_t begin = 0;   // in the whole text
  std::size_t prefix = 0;  // spaces that were put in front
  std::size_t at = 0;
};

TokenizerCore::TokenizerCore(TokenizerDefinition definition)
    : definition_(std::move(definition)),
      merges_(definition_.merges.size()),
      first_finder_(definition_.added_tokens, false),
      second_finder_(definition_.added_tokens, true) {
  const auto& tokens = definition_.tokens;
  ids_.reserve(tokens.size());
  bytes_.reserve(tokens.size());
  is_special_.resize(tokens.size());
  spaces_.resize(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) ids_.emplace(tokens[id], static_cast<std::uint32_t>(id));
    std::string bytes = bytes_of_token(tokens[id]).value_or(tokens[id]);
    const std::size_t leading = std::min(bytes.find_first_not_of(' '), bytes.size());
    const std::size_t trailing = bytes.size() - (bytes.find_last_not_of(' ') + 1);
    spaces_[id] = {static_cast<std::uint32_t>(leading), static_cast<std::uint32_t>(trailing)};
    bytes_.push_back(std::move(bytes));
  }
  for (const AddedToken& token : definition_.added_tokens) is_special_[token.id] = token.special;
  for (unsigned byte = 0; byte < 256; ++byte) {
    ids_of_bytes_[byte] = ids_.at(letter_of_byte(static_cast<std::uint8_t>(byte)));
  }
  std::uint32_t rank = 0;
  for (const auto& [left, right] : definition_.merges) {
    merges_.insert(left, right, {.rank = rank++, .id = ids_.at(tokens[left] + tokens[right])});
  }
  const auto id_of = [&](const char* token) -> std::optional<std::int64_t> {
    const std::uint32_t* const id = find(token);
    return id == nullptr ? std::nullopt : std::optional<std::int64_t>(*id);
  };
  special_tokens_ = {.bos = id_of("<s>"),
                     .pad = id_of("<pad>"),
                     .eos = id_of("</s>"),
                     .unknown = id_of("<unk>"),
                     .mask = id_of("<mask>")};
  if (!special_tokens_.bos) {
    const auto end_of_text = id_of("<|endoftext|>");
    special_tokens_.bos = end_of_text;
    if (!special_tokens_.eos) special_tokens_.eos = end_of_text;
    if (!special_tokens_.unknown) special_tokens_.unknown = end_of_text;
  }
}

const std::uint32_t* TokenizerCore::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? nullptr : &found->second;
}

bool TokenizerCore::has(std::int64_t id) const {
  return id >= 0 && static_cast<std::uint64_t>(id) < definition_.tokens.size() &&
         !definition_.tokens[static_cast<std::size_t>(id)].empty();
}

std::unique_ptr<EncodeWorkspace> TokenizerCore::take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto workspace = std::move(idle_.back());
      idle_.pop_back();
      return workspace;
    }
  }
  return std::make_unique<EncodeWorkspace>(EncodeWorkspace{.matches = splitter_.make_matches()});
}

void TokenizerCore::give_back(std::unique_ptr<EncodeWorkspace> workspace) const noexcept {
  // One long text would otherwise occupy its memory, in each thread, as long as the tokenizer lives.
  if (workspace->growing_bytes() > kKeptBytes) workspace->release();
  const std::lock_guard lock(mutex_);
  try {
    idle_.push_back(std::move(workspace));
  } catch (const std::bad_alloc&) {  // then it is made anew
  }
}

void TokenizerCore::encode(std::string_view text, bool with_offsets, EncodeWorkspace& workspace,
                           TextTokens& tokens) const {
  require_size(text.size(), "");
  tokens.size = 0;
  tokens.offsets.clear();
  Task task{.text = text, .with_offsets = with_offsets, .workspace = workspace, .tokens = tokens};
  if (simdjson::validate_utf8(text.data(), text.size())) return encode_valid(task);
  require_size(repaired_size(text), " when U+FFFD replaces its invalid UTF-8");
  const RepairedText repaired = repair_utf8(text);
  task.text = repaired.text;
  encode_valid(task);
  for (TextRange& range : tokens.offsets) range = {repaired.origins[range.begin], repaired.origins[range.end]};
}

void TokenizerCore::encode_valid(Task& task) const {
  const auto on_token = [&](const AddedToken& token, std::size_t begin, std::size_t end) {
    append_added(task, token, begin, end);
  };
  const auto on_words = [&](std::size_t begin, std::size_t end) { encode_words(task, begin, end); };
  const auto on_text = [&](std::size_t begin, std::size_t end) {
    second_finder_.split(task.text, begin, end, on_words, on_token);
  };
  first_finder_.split(task.text, 0, task.text.size(), on_text, on_token);
}

void TokenizerCore::encode_words(Task& task, std::size_t begin, std::size_t end) const {
  Words words{.text = task.text.substr(begin, end - begin), .begin = begin};
  if (definition_.add_prefix_space && words.text.front() != ' ') {
    words.text = task.workspace.prefixed.assign(1, ' ').append(words.text);
    words.prefix = 1;
  }
  task.reserve(words.text.size());
  while (words.at < words.text.size()) {
    const std::size_t word_end = splitter_.word_end(words.text, words.at, task.workspace.matches);
    append_word(task, words, words.text.substr(words.at, word_end - words.at));
    words.at = word_end;
  }
}

void TokenizerCore::append_word(Task& task, const Words& words, std::string_view word) const {
  TextTokens& tokens = task.tokens;
  WordMerger& merger = task.workspace.merger;
  std::uint32_t* const ids = tokens.ids.data() + tokens.size;
  WordCache::Entry* entry = nullptr;
  if (word.size() <= WordCache::kBytes) {
    const WordCache::Key key = WordCache::key_of(word, words.text.size() - words.at);
    entry = &task.workspace.cache.entry_of(key, word.size());
    if (entry->bytes == word.size() && entry->key == key) {
      std::memcpy(ids, entry->ids.data(), sizeof entry->ids);
      tokens.size += entry->size;
      if (task.with_offsets) append_offsets(task, words, entry->lengths.data(), entry->size);
      return;
    }
    *entry = {.key = key};
  }
  merger.merge(merges_, ids_of_bytes_, word);
  const std::size_t size = merger.size();
  std::copy_n(merger.ids(), size, ids);
  tokens.size += size;
  if (task.with_offsets) append_offsets(task, words, merger.lengths(), size);
  if (entry == nullptr || size > WordCache::kTokens) return;
  std::copy_n(merger.ids(), size, entry->ids.data());
  for (std::size_t i = 0; i < size; ++i) entry->lengths[i] = static_cast<std::uint8_t>(merger.lengths()[i]);
  entry->size = static_cast<std::uint8_t>(size);
  entry->bytes = static_cast<std::uint8_t>(word.size());
}

template <typename Length>
void TokenizerCore::append_offsets(Task& task, const Words& words, const Length* lengths, std::size_t count) const {
  TextTokens& tokens = task.tokens;
  std::size_t begin = words.at;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = begin + lengths[i];
    // The space that was put in front has the place of the first character.
    TextRange range{character_begin(task.text, words.begin + begin - std::min(begin, words.prefix)),
                    character_end(task.text, words.begin + std::max<std::size_t>(end - words.prefix, 1))};
    const std::size_t token = tokens.size - count + i;
    if (definition_.trim_offsets) trim(task.text, spaces_[tokens.ids[token]], token == 0, range);
    tokens.offsets.push_back(range);
    begin = end;
  }
}

void TokenizerCore::append_added(Task& task, const AddedToken& token, std::size_t begin, std::size_t end) const {
  TextTokens& tokens = task.tokens;
  task.reserve(1);
  if (task.with_offsets) {
    const std::string_view text = task.text.substr(begin, end - begin);
    const std::size_t leading = white_space_at_begin(text);
    const std::size_t trailing = white_space_at_end(text);
    TextRange range{begin, end};
    if (definition_.trim_offsets) {
      trim(task.text,
           {count_characters(text.substr(0, leading)), count_characters(text.substr(text.size() - trailing))},
           tokens.size == 0, range);
    }
    tokens.offsets.push_back(range);
  }
  tokens.ids[tokens.size++] = token.id;
}

void TokenizerCore::trim(std::string_view text, Spaces spaces, bool is_first_token, TextRange& range) const {
  const bool is_first = is_first_token || range.begin == 0;
  if (is_first && definition_.trim_keeps_first_space && spaces.leading == 1) spaces.leading = 0;
  // By characters, because a space that was put in front of a token within the text has the place of another one.
  for (; spaces.leading > 0 && range.begin < range.end; --spaces.leading) {
    range.begin = character_end(text, range.begin + 1);
  }
  for (; spaces.trailing > 0 && range.begin < range.end; --spaces.trailing) {
    range.end = character_begin(text, range.end - 1);
  }
}

}  // namespace libtrain::detail
