#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include <libtrain/text/detail/tokenizer_definition.hpp>

namespace libtrain::detail {

/// Finds added tokens in a text from left to right, the longest at each place. Immutable.
class AddedTokenFinder {
 public:
  /// The tokens whose `normalized` is as given; they must outlive the finder.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized);

  /// Calls on_text(begin, end) for the parts of bytes `begin` to `end - 1` between tokens, and on_token(token, begin,
  /// end) for tokens with the white space that they take along, in the order of the text.
  template <typename OnText, typename OnToken>
  void split(std::string_view text, std::size_t begin, std::size_t end, const OnText& on_text,
             const OnToken& on_token) const {
    const std::string_view part = text.substr(begin, end - begin);
    std::size_t done = 0;
    for (Match match = find(part, 0, done); match.token != nullptr; match = find(part, match.end, done)) {
      if (done < match.outer_begin) on_text(begin + done, begin + match.outer_begin);
      on_token(*match.token, begin + match.outer_begin, begin + match.outer_end);
      done = match.outer_end;
    }
    if (done < part.size()) on_text(begin + done, end);
  }

 private:
  struct Match {
    const AddedToken* token = nullptr;
    std::size_t end = 0;  ///< of the token itself
    std::size_t outer_begin = 0;
    std::size_t outer_end = 0;  ///< with white space
  };

  // The first match from `from` on; white space before `done` belongs to the one before it.
  Match find(std::string_view text, std::size_t from, std::size_t done) const;
  std::size_t next_candidate(std::string_view text, std::size_t from) const;

  std::array<std::vector<const AddedToken*>, 256> by_first_byte_ = {};  // longest first
  int only_first_byte_ = -1;                                            // of all tokens; -1: they have several
  bool empty_ = true;
};

}  // namespace libtrain::detail
