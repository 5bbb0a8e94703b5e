#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// The parts of scheme:[//authority]path[?query] (RFC 3986, section 3), none of them decoded.
struct Uri {
  std::string name;                      ///< all before the query, without '/' at its end: what may be printed
  std::string scheme;                    ///< in small letters
  std::optional<std::string> authority;  ///< what follows "//", where that is there
  std::string path;
  std::optional<std::string> query;  ///< without its '?'. May be secret
  bool has_fragment = false;         ///< there is a '#'
};

/// Nothing where `location` does not begin with a scheme of two or more characters and ':'.
std::optional<Uri> split_uri(std::string_view location);

/// ASCII letters in small.
std::string lower_case(std::string_view word);

/// Without the slashes at its end; one stays where there is nothing else, or where "//" of a URI would go.
std::string without_trailing_slashes(std::string_view path);

}  // namespace libtrain::data::detail
