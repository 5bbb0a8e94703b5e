#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <span>
#include <string>
#include <string_view>

#include <libtrain/base/text.hpp>

namespace libtrain::detail {

/// "0x" and at least `digits` lower-case hexadecimal digits: `hexadecimal(0x1f, 4)` is "0x001f".
inline std::string hexadecimal(std::uint64_t number, int digits = 1) {
  std::array<char, 16> buffer{};
  const auto end = std::to_chars(buffer.begin(), buffer.end(), number, 16).ptr;
  const auto missing = std::max<std::ptrdiff_t>(digits - (end - buffer.begin()), 0);
  return "0x" + std::string(static_cast<std::size_t>(missing), '0') + std::string(buffer.begin(), end);
}

/// Two lower-case hexadecimal digits for each byte.
inline std::string hexadecimal(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (const auto byte : bytes) (digits += kDigits[byte >> 4]) += kDigits[byte & 15];
  return digits;
}

/// With `digits` digits after the decimal point: `decimal(2.5, 2)` is "2.50".
inline std::string decimal(double value, int digits) {
  OutputText stream;
  stream << std::fixed << std::setprecision(digits) << value;
  return stream.str();
}

}  // namespace libtrain::detail
