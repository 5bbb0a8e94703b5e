#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace libtrain {

/// The environment variables of a process as an immutable value: read once, passed as an argument, made up in tests.
class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string, std::less<>> variables) : variables_(std::move(variables)) {}

  /// A copy of this process's environment.
  static Environment of_process();

  /// The value of `name`; nothing where it is unset or empty.
  std::optional<std::string> get(std::string_view name) const;

  bool has(std::string_view name) const { return get(name).has_value(); }

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

/// `digits` as a decimal integer in [minimum, maximum]: no sign but a leading minus, no spaces, no trailing text.
std::optional<long long> parse_integer(std::string_view digits, long long minimum, long long maximum);

}  // namespace libtrain
