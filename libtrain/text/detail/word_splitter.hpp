#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace libtrain::detail {

/// Splits UTF-8 into words by GPT-2's pattern (encoder.py):
///
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// Letters, numbers and white space are those of Unicode 16, as in `tokenizers` 0.23, whichever version an installed
/// PCRE2 from 10.40 (Unicode 14) to 10.46 (Unicode 16) knows. Immutable: any thread may use it, each with its Matches.
class WordSplitter {
 public:
  struct FreeMatches {
    void operator()(pcre2_real_match_data_8* matches) const;
  };
  /// What a match needs besides the pattern.
  using Matches = std::unique_ptr<pcre2_real_match_data_8, FreeMatches>;

  WordSplitter();

  Matches make_matches() const;

  /// The end of the word that begins at `begin`, below text.size(), where the text before is split. Words of ASCII
  /// that end before the next other character are found without PCRE2, with the same result.
  std::size_t word_end(std::string_view text, std::size_t begin, const Matches& matches) const;

  /// The same, by PCRE2 alone. Throws EnvironmentError if PCRE2 fails, such as for lack of memory.
  std::size_t matched_word_end(std::string_view text, std::size_t begin, const Matches& matches) const;

 private:
  struct FreePattern {
    void operator()(pcre2_real_code_8* pattern) const;
  };
  std::unique_ptr<pcre2_real_code_8, FreePattern> pattern_;
};

/// Whether the text ends, or begins, with a character of a word: a letter, mark, decimal digit, connector or joiner
/// (\w of Unicode Technical Standard 18, annex C).
bool ends_with_word(std::string_view text);
bool begins_with_word(std::string_view text);

}  // namespace libtrain::detail
