#pragma once

namespace libtrain::detail {

/// The small letter of a capital letter of ASCII; any other character as it is, whatever the locale.
constexpr char ascii_lower(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
}

}  // namespace libtrain::detail
