#include <libtrain/data/storage/sas_token.hpp>

#include <algorithm>
#include <cstddef>

namespace libtrain::data::detail {

std::string_view sas_parameter(std::string_view token, std::string_view name) {
  if (token.starts_with('?')) token.remove_prefix(1);
  while (!token.empty()) {
    const auto end = std::min(token.find('&'), token.size());
    const auto parameter = token.substr(0, end);
    const auto equals = std::min(parameter.find('='), parameter.size());
    if (parameter.substr(0, equals) == name) return parameter.substr(std::min(equals + 1, parameter.size()));
    token.remove_prefix(std::min(end + 1, token.size()));
  }
  return {};
}

std::string without_question_mark(std::string_view token) {
  if (token.starts_with('?')) token.remove_prefix(1);
  return std::string{token};
}

}  // namespace libtrain::data::detail
