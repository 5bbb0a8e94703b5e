#pragma once

#include <concepts>
#include <cstddef>
#include <string>

namespace libtrain::detail {

/// The number in the sizeof(Number) bytes at `from`, least significant byte first.
template <std::unsigned_integral Number>
Number load_little_endian(const char* from) {
  Number number = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;) {
    number = static_cast<Number>(number << 8 | Number{static_cast<unsigned char>(from[i])});
  }
  return number;
}

template <std::unsigned_integral Number>
void append_little_endian(std::string& to, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) to.push_back(static_cast<char>(number >> 8 * i & 0xff));
}

}  // namespace libtrain::detail
