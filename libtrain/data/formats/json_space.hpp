#pragma once

#include <string_view>

namespace libtrain::data::detail {

/// JSON's white space (RFC 8259, section 2).
inline constexpr std::string_view kJsonSpace = " \t\r\n";

inline bool is_json_space(char character) {
  return character == ' ' || character == '\n' || character == '\r' || character == '\t';
}

/// The first place from `at` on, before `end`, that is not white space; `end` where there is none.
inline const char* skip_json_space(const char* at, const char* end) {
  while (at < end && is_json_space(*at)) ++at;
  return at;
}

}  // namespace libtrain::data::detail
