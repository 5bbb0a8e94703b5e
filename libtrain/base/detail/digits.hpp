#pragma once

#include <cstdint>
#include <iomanip>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

namespace libtrain::detail {

/// "0x" and at least so many hexadecimal digits, letters small: `hexadecimal(0x1f, 4)` is "0x001f".
inline std::string hexadecimal(std::uint64_t number, int digits = 1) {
  std::ostringstream stream;
  stream << "0x" << std::hex << std::setw(digits) << std::setfill('0') << number;
  return stream.str();
}

/// Two hexadecimal digits for each byte, letters small.
inline std::string hexadecimal(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (const auto byte : bytes) (digits += kDigits[byte >> 4]) += kDigits[byte & 15];
  return digits;
}

/// With so many digits after the point: `decimal(2.5, 2)` is "2.50".
inline std::string decimal(double value, int digits) {
  std::ostringstream stream;
  stream << std::fixed << std::setprecision(digits) << value;
  return stream.str();
}

}  // namespace libtrain::detail
