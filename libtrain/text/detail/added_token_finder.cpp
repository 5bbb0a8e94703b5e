#include <libtrain/text/detail/added_token_finder.hpp>

#include <algorithm>
#include <cstring>

#include <libtrain/text/detail/utf8.hpp>
#include <libtrain/text/detail/word_splitter.hpp>

namespace libtrain::detail {

namespace {

bool is_within_word(std::string_view text, std::size_t begin, std::size_t end) {
  return ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized) {
  int first_bytes = 0;
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    const auto first = static_cast<unsigned char>(token.content.front());
    if (by_first_byte_[first].empty()) {
      ++first_bytes;
      only_first_byte_ = first;
    }
    by_first_byte_[first].push_back(&token);
  }
  empty_ = first_bytes == 0;
  if (first_bytes != 1) only_first_byte_ = -1;
  for (auto& candidates : by_first_byte_) {
    std::ranges::stable_sort(candidates, std::ranges::greater{},
                             [](const AddedToken* token) { return token->content.size(); });
  }
}

std::size_t AddedTokenFinder::next_candidate(std::string_view text, std::size_t from) const {
  if (only_first_byte_ >= 0 && from < text.size()) {
    const void* const found = std::memchr(text.data() + from, only_first_byte_, text.size() - from);
    return found == nullptr ? text.size() : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  }
  while (from < text.size() && by_first_byte_[static_cast<unsigned char>(text[from])].empty()) ++from;
  return from;
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, std::size_t from, std::size_t done) const {
  if (empty_) return {};
  for (std::size_t at = next_candidate(text, from); at < text.size(); at = next_candidate(text, at)) {
    const auto& candidates = by_first_byte_[static_cast<unsigned char>(text[at])];
    const auto found = std::ranges::find_if(
        candidates, [&](const AddedToken* token) { return text.substr(at).starts_with(token->content); });
    if (found == candidates.end()) {
      ++at;
      continue;
    }
    const AddedToken& token = **found;
    const std::size_t end = at + token.content.size();
    if (token.single_word && is_within_word(text, at, end)) {
      at = end;
      continue;
    }
    Match match{.token = &token, .end = end, .outer_begin = at, .outer_end = end};
    // What the match before has taken is not looked at again: between its own end and `done` is white space.
    if (token.lstrip) {
      match.outer_begin = at > done ? at - white_space_at_end(text.substr(done, at - done)) : done;
    }
    if (token.rstrip) {
      const std::size_t from = std::max(end, done);
      match.outer_end = from + white_space_at_begin(text.substr(from));
    }
    if (match.outer_begin < match.outer_end) return match;
    at = end;  // the token before has taken all of this one
  }
  return {};
}

}  // namespace libtrain::detail
