#pragma once

#include <sstream>
#include <string>

namespace libtrain {

/// Joins printable values into one string: `text("rank ", 3, " of ", 8)`.
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

/// Joins the elements of a range with a separator: `join(names, ", ")`.
template <typename Range>
std::string join(const Range& range, const std::string& separator) {
  std::ostringstream stream;
  bool first = true;
  for (const auto& element : range) {
    if (!first) stream << separator;
    stream << element;
    first = false;
  }
  return stream.str();
}

}  // namespace libtrain
