#pragma once

#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace libtrain {

/// The environment variables of a process as an immutable value: read once, then passed as an argument.
class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string, std::less<>> variables) : variables_(std::move(variables)) {}

  /// A copy of this process's environment.
  static Environment of_process();

  /// The value of `name`; std::nullopt if it is unset or empty.
  std::optional<std::string> get(std::string_view name) const;

  bool has(std::string_view name) const { return get(name).has_value(); }

  /// Names and values of the variables whose names begin with `prefix` and that are not empty, ordered by name.
  std::vector<std::pair<std::string, std::string>> with_prefix(std::string_view prefix) const;

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

namespace detail {

/// `word` as a decimal number in [minimum, maximum], which are finite: no blanks, no plus, no 0x, no leading 0 that
/// makes it octal, no nan. std::nullopt for anything else.
template <typename Number>
std::optional<Number> parse_decimal(std::string_view word, Number minimum, Number maximum) {
  Number number{};
  const auto* end = word.data() + word.size();
  const auto [rest, failure] = std::from_chars(word.data(), end, number);
  const bool is_within = number >= minimum && number <= maximum;
  return failure == std::errc{} && rest == end && is_within ? std::optional{number} : std::nullopt;
}

}  // namespace detail

/// `digits` as a decimal integer in [minimum, maximum]: no sign but a leading minus, no spaces, no trailing text.
/// std::nullopt for anything else.
inline std::optional<long long> parse_integer(std::string_view digits, long long minimum, long long maximum) {
  return detail::parse_decimal(digits, minimum, maximum);
}

}  // namespace libtrain
