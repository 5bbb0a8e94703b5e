#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::detail {

/// Text whose bytes that are no UTF-8 were replaced.
struct RepairedText {
  std::string text = {};
  std::vector<std::size_t> origins = {};  ///< of each byte, and of the end: its position in the former text
};

/// Replaces each maximal subpart of an ill-formed sequence by U+FFFD (The Unicode Standard 16.0, section 3.9, table
/// 3-7 and "U+FFFD Substitution of Maximal Subparts"), as Python's errors="replace" does.
RepairedText repair_utf8(std::string_view text);

/// How many bytes the repaired text has, which are up to three times as many.
std::size_t repaired_size(std::string_view text);

/// The repaired text, without positions.
std::string replace_invalid_utf8(std::string_view text);

/// The following functions need valid UTF-8 and a position within it.

/// The beginning of the character that has the byte `at`; the end of the text if it is that.
std::size_t character_begin(std::string_view text, std::size_t at);

/// `at` if a character begins there, otherwise the end of the character that has this byte.
std::size_t character_end(std::string_view text, std::size_t at);

/// The bytes of white space (Unicode's White_Space) that the text ends with, or begins with.
std::size_t white_space_at_end(std::string_view text);
std::size_t white_space_at_begin(std::string_view text);

}  // namespace libtrain::detail
