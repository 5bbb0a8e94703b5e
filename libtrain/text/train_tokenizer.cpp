#include <libtrain/text/train_tokenizer.hpp>

#include <algorithm>
#include <exception>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/text/detail/byte_alphabet.hpp>
#include <libtrain/text/detail/learn_merges.hpp>
#include <libtrain/text/detail/post_processor.hpp>
#include <libtrain/text/detail/tokenizer_core.hpp>
#include <libtrain/text/detail/utf8.hpp>
#include <libtrain/text/detail/word_splitter.hpp>

namespace libtrain {

namespace {

void require_sound(const TrainTokenizerOptions& options) {
  std::set<std::string_view> seen;
  for (const std::string& token : options.special_tokens) {
    if (token.empty() || !seen.insert(token).second || detail::replace_invalid_utf8(token) != token) {
      throw UsageError(
          text("The special token '", token, "' is empty, there twice, or not UTF-8. Name each special token once."));
    }
  }
  const std::size_t least = options.special_tokens.size() + 256;
  if (options.vocabulary_size < least || options.vocabulary_size > detail::TokenizerDefinition::kIds) {
    throw UsageError(text("The vocabulary_size is ", options.vocabulary_size, ". Set it to ", least,
                          ", for the special tokens and the 256 bytes, up to ", detail::TokenizerDefinition::kIds,
                          "."));
  }
  if (options.threads < 1) throw UsageError(text("threads is ", options.threads, ". Set it to at least 1."));
}

}  // namespace

struct TokenizerTrainer::State {
  struct Hash {
    using is_transparent = void;  // words are looked up without a copy
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>{}(word); }
  };
  using Counts = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;

  TrainTokenizerOptions options;
  detail::WordSplitter splitter = {};
  std::vector<Counts> counts = {};  // of each thread

  void count(std::span<const std::string> texts, Counts& to) const {
    const auto matches = splitter.make_matches();
    for (const std::string& text : texts) {
      std::string valid = detail::replace_invalid_utf8(text);
      if (options.add_prefix_space && !valid.empty() && valid.front() != ' ') valid.insert(0, 1, ' ');
      for (std::size_t at = 0; at < valid.size();) {
        const std::size_t end = splitter.word_end(valid, at, matches);
        const std::string_view word = std::string_view{valid}.substr(at, end - at);
        at = end;
        if (const auto found = to.find(word); found != to.end()) {
          ++found->second;
        } else {
          to.emplace(word, 1);
        }
      }
    }
  }
};

TokenizerTrainer::TokenizerTrainer(TrainTokenizerOptions options) {
  require_sound(options);
  state_ = std::make_unique<State>(State{.options = std::move(options)});
  state_->counts.resize(static_cast<std::size_t>(state_->options.threads));
}

TokenizerTrainer::TokenizerTrainer(TokenizerTrainer&&) noexcept = default;
TokenizerTrainer& TokenizerTrainer::operator=(TokenizerTrainer&&) noexcept = default;
TokenizerTrainer::~TokenizerTrainer() = default;

void TokenizerTrainer::add(std::span<const std::string> texts) {
  auto& counts = state_->counts;
  std::vector<std::exception_ptr> failures(counts.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t begin = texts.size() * i / counts.size();
      const std::size_t end = texts.size() * (i + 1) / counts.size();
      if (begin == end) continue;
      threads.emplace_back([&, i, part = texts.subspan(begin, end - begin)] {
        try {
          state_->count(part, counts[i]);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

std::size_t TokenizerTrainer::words() const {
  std::set<std::string_view> words;
  for (const auto& counts : state_->counts) {
    for (const auto& [word, count] : counts) words.insert(word);
  }
  return words.size();
}

Tokenizer TokenizerTrainer::train() const {
  const TrainTokenizerOptions& options = state_->options;
  std::unordered_map<std::string_view, std::int64_t> totals;
  for (const auto& counts : state_->counts) {
    for (const auto& [word, count] : counts) totals[word] += count;
  }
  const std::vector<detail::CountedWord> words(totals.begin(), totals.end());

  detail::TokenizerDefinition definition;
  definition.tokens = options.special_tokens;
  std::vector<std::string> letters;
  for (unsigned byte = 0; byte < 256; ++byte)
    letters.push_back(detail::letter_of_byte(static_cast<std::uint8_t>(byte)));
  std::ranges::sort(letters);  // UTF-8 sorts by code points
  for (std::string& letter : letters) {
    if (std::ranges::find(options.special_tokens, letter) == options.special_tokens.end()) {
      definition.tokens.push_back(std::move(letter));
    }
  }
  detail::learn_merges(words, options.vocabulary_size, options.min_frequency, definition);
  definition.add_prefix_space = options.add_prefix_space;
  detail::use_special_tokens(options.special_tokens, definition);
  return Tokenizer(std::make_shared<const detail::TokenizerCore>(std::move(definition)));
}

}  // namespace libtrain
