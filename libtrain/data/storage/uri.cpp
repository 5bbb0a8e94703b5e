#include <libtrain/data/storage/uri.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>

#include <libtrain/base/ascii.hpp>

namespace libtrain::data::detail {

namespace {

constexpr auto kNotFound = std::string_view::npos;

bool is_scheme(std::string_view word) {
  // A single letter is more likely a drive or a short name than a scheme.
  if (word.size() < 2 || std::isalpha(static_cast<unsigned char>(word.front())) == 0) return false;
  return std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '.' || c == '-';
  });
}

}  // namespace

std::string lower_case(std::string_view word) {
  std::string lower{word};
  std::transform(lower.begin(), lower.end(), lower.begin(), ascii_lower);
  return lower;
}

std::string without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/') && !path.ends_with("://")) path.remove_suffix(1);
  return std::string{path};
}

std::optional<Uri> split_uri(std::string_view location) {
  const auto colon = location.find(':');
  if (colon == kNotFound || !is_scheme(location.substr(0, colon))) return std::nullopt;
  Uri uri;
  uri.scheme = lower_case(location.substr(0, colon));
  uri.has_fragment = location.find('#') != kNotFound;
  if (const auto question = location.find('?'); question != kNotFound) {
    uri.query = std::string{location.substr(question + 1)};
    location = location.substr(0, question);
  }
  uri.name = without_trailing_slashes(location);
  auto rest = location.substr(colon + 1);
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    const auto slash = std::min(rest.find('/'), rest.size());
    uri.authority = std::string{rest.substr(0, slash)};
    rest.remove_prefix(slash);
  }
  uri.path = std::string{rest};
  return uri;
}

}  // namespace libtrain::data::detail
