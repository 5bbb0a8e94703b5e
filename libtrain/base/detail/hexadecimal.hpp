#pragma once

#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>

namespace libtrain::detail {

/// "0x" and at least so many hexadecimal digits, letters small: `hexadecimal(0x1f, 4)` is "0x001f".
inline std::string hexadecimal(std::uint64_t number, int digits = 1) {
  std::ostringstream stream;
  stream << "0x" << std::hex << std::setw(digits) << std::setfill('0') << number;
  return stream.str();
}

}  // namespace libtrain::detail
