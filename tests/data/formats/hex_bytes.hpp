#pragma once

#include <string>
#include <string_view>

namespace libtrain::data {

/// The bytes that these small hexadecimal digits stand for; spaces are left out.
inline std::string from_hex(std::string_view digits) {
  std::string bytes;
  int high = -1;
  for (const char digit : digits) {
    if (digit == ' ') continue;
    const int value = digit <= '9' ? digit - '0' : digit - 'a' + 10;
    if (high < 0) {
      high = value;
      continue;
    }
    bytes.push_back(static_cast<char>(16 * high + value));
    high = -1;
  }
  return bytes;
}

}  // namespace libtrain::data
