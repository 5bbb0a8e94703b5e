#include <libtrain/data/formats/json_fault.hpp>

#include <utility>

namespace libtrain::data::detail {

JsonFault data_fault(std::string expected, const char* at) {
  return {.kind = JsonFault::Kind::data, .at = at, .expected = std::move(expected)};
}

std::string json_excerpt(std::string_view text, std::string_view end) {
  constexpr std::size_t longest = 24;
  if (text.empty()) return std::string{end};
  std::string excerpt = "'";
  for (const char character : text.substr(0, longest)) {
    const bool printable = character >= ' ' && character <= '~';
    excerpt += printable ? character : '?';
  }
  excerpt += text.size() > longest ? "'..." : "'";
  return excerpt;
}

}  // namespace libtrain::data::detail
