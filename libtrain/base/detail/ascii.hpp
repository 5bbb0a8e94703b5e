#pragma once

namespace libtrain::detail {

/// Converts an ASCII capital letter to lower case, independent of the locale; returns any other character unchanged.
constexpr char ascii_lower(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
}

}  // namespace libtrain::detail
