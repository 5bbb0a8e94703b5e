#pragma once

#include <locale>
#include <sstream>
#include <string>
#include <utility>

namespace libtrain {

namespace detail {

/// Writes what files, other ranks and users read. The program's std::locale::global(), which may group the digits of
/// numbers, does not change it.
class OutputText : public std::ostringstream {
 public:
  OutputText() { imbue(std::locale::classic()); }
};

/// Reads such text, also where the program's locale would take a space as part of a number.
class InputText : public std::istringstream {
 public:
  explicit InputText(std::string text) : std::istringstream(std::move(text)) { imbue(std::locale::classic()); }
};

}  // namespace detail

/// Joins printable values into one string: `text("rank ", 3, " of ", 8)`.
template <typename... Parts>
std::string text(const Parts&... parts) {
  detail::OutputText stream;
  (stream << ... << parts);
  return stream.str();
}

/// Joins the elements of a range with a separator: `join(names, ", ")`.
template <typename Range>
std::string join(const Range& range, const std::string& separator) {
  detail::OutputText stream;
  bool first = true;
  for (const auto& element : range) {
    if (!first) stream << separator;
    stream << element;
    first = false;
  }
  return stream.str();
}

}  // namespace libtrain
