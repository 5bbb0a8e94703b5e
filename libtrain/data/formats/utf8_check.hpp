#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace libtrain::data {

/// Checks UTF-8 that comes in pieces, cut anywhere: no overlong forms, no surrogates, nothing above U+10FFFF
/// (The Unicode Standard 15.0, table 3-7).
class Utf8Check {
 public:
  /// The position in `piece` of the first byte that may not stand where it stands; nothing where all may.
  /// After a position was returned the object is done.
  std::optional<std::size_t> add(std::string_view piece);

  /// Whether the text so far ends with a whole character.
  bool complete() const { return missing_ == 0; }

 private:
  bool begin_character(std::uint8_t byte);

  int missing_ = 0;  // bytes that the character begun still needs
  std::uint8_t lowest_ = 0x80;
  std::uint8_t highest_ = 0xbf;  // of the next one of them
};

}  // namespace libtrain::data
